// SPDX-License-Identifier: Apache-2.0

// Package ui tests pages of 'kubectl gate report' in a real browser. 'make
// test-ui' runs it.
package ui

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	pages       = flag.String("pages", "", "the directory that the pages are in")
	screenshots = flag.String("screenshots", "", "the directory to write screenshots to")

	browser context.Context
)

// silence is the time limit for a response of the browser. The duration of tests is not
// limited.
const silence = 2 * time.Minute

// TestMain starts one browser for all tests.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if *pages == "" || *screenshots == "" {
		fmt.Fprintln(os.Stderr, "-pages and -screenshots are required; run 'make test-ui'")
		return 2
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		fmt.Fprintln(os.Stderr, "chromium was not found: install Debian's package of that name")
		return 2
	}
	profile, err := os.MkdirTemp("", "nodegate-ui-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer os.RemoveAll(profile)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(silence))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var end context.CancelFunc
	browser, end = chromedp.NewContext(allocated)
	defer end()
	if err := chromedp.Run(browser); err != nil {
		fmt.Fprintln(os.Stderr, "starting chromium:", err)
		return 2
	}
	return m.Run()
}

// a screen is the size and the preferences with which a page is displayed.
type screen struct {
	name          string
	width, height int64
	scheme        string
	reduced       bool
}

var screensOf = []screen{
	{name: "light", width: 1280, height: 900, scheme: "light"},
	{name: "dark", width: 1280, height: 900, scheme: "dark"},
	{name: "phone", width: 360, height: 780, scheme: "light"},
	{name: "phone-dark", width: 360, height: 780, scheme: "dark", reduced: true},
}

// a tab displays a page, and records console messages and requests.
type tab struct {
	context.Context
	t *testing.T
	// watchdog closes the page if the browser does not respond.
	watchdog *time.Timer
	mu       sync.Mutex
	// complaints are messages on the console, and exceptions.
	complaints []string
	requests   []string
}

// open opens a page.
func open(t *testing.T, page string, s screen, scripts bool) *tab {
	t.Helper()
	inTab, end := chromedp.NewContext(browser)
	t.Cleanup(end)
	b := &tab{Context: inTab, t: t, watchdog: time.AfterFunc(silence, end)}
	t.Cleanup(func() { b.watchdog.Stop() })
	chromedp.ListenTarget(inTab, b.note)
	path, err := filepath.Abs(filepath.Join(*pages, page+".html"))
	if err != nil {
		t.Fatal(err)
	}
	motion := "no-preference"
	if s.reduced {
		motion = "reduce"
	}
	b.do(network.Enable(), log.Enable(), runtime.Enable(),
		emulation.SetDeviceMetricsOverride(s.width, s.height, 1, s.width < 500),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: s.scheme}, {Name: "prefers-reduced-motion", Value: motion},
		}),
		emulation.SetScriptExecutionDisabled(!scripts),
		chromedp.Navigate((&url.URL{Scheme: "file", Path: path}).String()))
	return b
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		b.complaints = append(b.complaints, e.Entry.Text)
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprint("console.", e.Type))
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "file:") {
			b.requests = append(b.requests, e.Request.URL)
		}
	}
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	b.watchdog.Reset(silence)
	if err := chromedp.Run(b, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// ask evaluates an expression on the page.
func ask[T any](b *tab, expression string) (answer T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &answer, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true)
	}))
	return answer
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.t.Helper()
	b.watchdog.Reset(2 * silence) // longer than the timeout of the poll
	if err := chromedp.Run(b, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(silence))); err != nil {
		b.t.Fatalf("waiting for %s: %v; the page has: %s", expression, err, ask[string](b, "document.body.innerText.slice(0, 600)"))
	}
}

func (b *tab) screenshot(name string, whole bool) {
	b.t.Helper()
	var png []byte
	action := chromedp.CaptureScreenshot(&png)
	if whole {
		action = chromedp.FullScreenshot(&png, 100)
	}
	b.do(action)
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// clean checks that the console is empty, and that there were no requests.
func (b *tab) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		b.t.Errorf("console: %s", strings.Join(b.complaints, "\n"))
	}
	if len(b.requests) > 0 {
		b.t.Errorf("the page requested %s", strings.Join(b.requests, ", "))
	}
}

var names = []string{"fleet", "healthy", "empty", "hostile"}

// On every screen, a page leaves the console empty, sends no requests, is not wider than
// the screen, and passes the accessibility checks.
func TestPages(t *testing.T) {
	for _, page := range names {
		for _, s := range screensOf {
			t.Run(page+"/"+s.name, func(t *testing.T) {
				b := open(t, page, s, true)
				b.screenshot(page+"-"+s.name, false)
				b.do(chromedp.Evaluate(`document.querySelectorAll('#rows details').forEach((d, i) => { d.open = i < 3 })`, nil))
				if page != "empty" {
					b.until(`document.querySelector('#rows .lanes') !== null`)
				}
				b.accessible()
				if wide := ask[int64](b, `document.documentElement.scrollWidth`); wide > s.width {
					t.Errorf("the page is %d pixels wide, on a screen of %d: %s", wide, s.width, ask[string](b, fmt.Sprintf(widest, s.width)))
				}
				b.screenshot(page+"-"+s.name+"-whole", true)
				if title := ask[string](b, `document.title`); !strings.HasPrefix(title, "Gate report") {
					t.Errorf("the title is %q", title)
				}
				b.clean()
			})
		}
	}
}

// widest returns the elements that are wider than the screen.
const widest = `[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > %d && !e.closest('.scroll'))
	.slice(0, 5).map((e) => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40)).join('\n')`

// accessible runs the accessibility checks.
func (b *tab) accessible() {
	b.t.Helper()
	raw, err := os.ReadFile("checks.js")
	if err != nil {
		b.t.Fatal(err)
	}
	var found []string
	if err := json.Unmarshal([]byte(ask[string](b, string(raw))), &found); err != nil {
		b.t.Fatal(err)
	}
	for _, f := range found {
		b.t.Error(f)
	}
}

// A page with 5,000 nodes renders them in parts.
func TestALargeFleetIsDrawnInParts(t *testing.T) {
	b := open(t, "fleet", screensOf[0], true)
	if rows := ask[int](b, `document.querySelectorAll('#rows > li').length`); rows != 50 {
		t.Errorf("%d nodes are rendered at first, want 50", rows)
	}
	if elements := ask[int](b, `document.querySelectorAll('*').length`); elements > 3000 {
		t.Errorf("the page has %d elements", elements)
	}
	b.do(chromedp.Click("#more", chromedp.ByQuery))
	b.until(`document.querySelectorAll('#rows > li').length === 100`)
	if !ask[bool](b, `document.activeElement === document.querySelectorAll('#rows > li')[50].querySelector('summary')`) {
		t.Error("'more' does not focus the first new node")
	}
	b.clean()
}

// The page can be used with the keyboard alone.
func TestKeyboard(t *testing.T) {
	b := open(t, "fleet", screensOf[0], true)
	tabTo := func(id string) {
		t.Helper()
		for range 80 {
			b.do(chromedp.KeyEvent(kb.Tab))
			if ask[string](b, `document.activeElement.id || document.activeElement.tagName`) == id {
				return
			}
		}
		t.Fatalf("the Tab key does not reach %s", id)
	}
	tabTo("theme")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.documentElement.dataset.theme === 'light'`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.documentElement.dataset.theme === 'dark' && getComputedStyle(document.body).backgroundColor === 'rgb(15, 19, 25)'`)
	b.do(chromedp.KeyEvent(kb.Enter))

	tabTo("q")
	b.do(chromedp.KeyEvent("ip-10-0-3-"))
	b.until(`/^[0-9]+ of 5,000 nodes/.test(document.getElementById('found').textContent)`)
	b.until(`[...document.querySelectorAll('#rows summary .name')].every((e) => e.textContent.includes('ip-10-0-3-'))`)
	tabTo("state")
	b.do(chromedp.KeyEvent("h"))
	b.until(`document.getElementById('state').value === 'held' && document.querySelectorAll('#rows .took:not(.bad)').length === 0`)
	tabTo("SUMMARY")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector('#rows .lanes h3') !== null`)
	b.screenshot("keyboard", false)
	b.clean()
}

// The link of a pool displays its nodes.
func TestPoolsLinkToTheirNodes(t *testing.T) {
	b := open(t, "fleet", screensOf[0], true)
	b.do(chromedp.Click(`a[data-pool="gpu-a100"]`, chromedp.ByQuery))
	b.until(`document.querySelectorAll('#rows .place').length === 50 && [...document.querySelectorAll('#rows .place')].every((e) => e.textContent.startsWith('gpu-a100'))`)
	b.clean()
}

// The number of overdue nodes links to them.
func TestOverdueLinksToNodes(t *testing.T) {
	b := open(t, "fleet", screensOf[0], true)
	b.do(chromedp.Click(`a[data-state="overdue"]`, chromedp.ByQuery))
	b.until(`document.getElementById('found').textContent === '2 of 5,000 nodes'`)
	if !ask[bool](b, `[...document.querySelectorAll('#rows .took')].every((e) => e.textContent.endsWith('overdue')) && document.activeElement.id !== 'q'`) {
		t.Errorf("the nodes are not overdue: %s", ask[string](b, `document.getElementById('rows').innerText`))
	}
	b.clean()
}

// If the API server's clock is ahead, no node is held for a negative time.
func TestNoNegativeDurations(t *testing.T) {
	b := open(t, "ahead", screensOf[0], true)
	b.do(chromedp.Evaluate(`document.querySelectorAll('#rows details').forEach((d) => { d.open = true })`, nil))
	b.until(`document.querySelectorAll('#rows .lanes').length === 40`)
	if got := ask[string](b, `(document.body.innerText.match(/.*(held|for)\s+-\d.*/) || [''])[0]`); got != "" {
		t.Errorf("the page contains %q", got)
	}
	if !ask[bool](b, `document.body.innerText.includes('held 0s') && document.body.innerText.includes('closed for 0s')`) {
		t.Error("the page does not say that nodes have been held for 0s")
	}
	b.clean()
}

// Without scripts, the main figures are displayed.
func TestWithoutScripts(t *testing.T) {
	b := open(t, "fleet", screensOf[0], false)
	var text string
	b.do(chromedp.Text("body", &text, chromedp.ByQuery))
	for _, want := range []string{"nodes are held", "Longest held", "Time from creation to opening", "The first 48 of 5,000 nodes", "held 27m 44s", "52m 27s", "gpu-a100"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	b.screenshot("without-scripts", true)
}

// The print version has no controls.
func TestPrint(t *testing.T) {
	b := open(t, "healthy", screensOf[0], true)
	b.do(emulation.SetEmulatedMedia().WithMedia("print"))
	if ask[string](b, `getComputedStyle(document.getElementById('filter')).display`) != "none" {
		t.Error("the filter is printed")
	}
	b.screenshot("print", true)
	b.clean()
}

// The print version is dark on white, also if the page or the system has a dark theme: browsers print
// no backgrounds.
func TestPrintOfADarkPage(t *testing.T) {
	for _, theme := range []string{"dark", "system"} {
		b := open(t, "fleet", screensOf[0], true)
		b.do(chromedp.Evaluate(fmt.Sprintf(`document.documentElement.dataset.theme = '%s'`, theme), nil),
			emulation.SetEmulatedMedia().WithMedia("print").WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
		b.accessible()
		for _, e := range []string{"h1", ".card h3", ".held .name", "summary .name", "td"} {
			if color := ask[string](b, fmt.Sprintf(`getComputedStyle(document.querySelector('%s')).color`, e)); color != "rgb(23, 32, 44)" {
				t.Errorf("theme %s: %s is printed in %s", theme, e, color)
			}
		}
		b.screenshot("print-"+theme, false)
		b.clean()
	}
}

// The accessibility checks detect defects.
func TestChecksDetectDefects(t *testing.T) {
	b := open(t, "healthy", screensOf[0], true)
	b.do(chromedp.Evaluate(`
		document.querySelector('.lead').style.color = '#bbb';
		document.querySelector('main').append(document.createElement('button'), document.createElement('h5'));
		document.getElementById('q').closest('label').replaceWith(document.getElementById('q'));`, nil))
	raw, err := os.ReadFile("checks.js")
	if err != nil {
		t.Fatal(err)
	}
	found := ask[string](b, string(raw))
	for _, want := range []string{"contrast", "BUTTON", "heading", "INPUT"} {
		if !strings.Contains(found, want) {
			err = errors.Join(err, fmt.Errorf("no finding about %s", want))
		}
	}
	if err != nil {
		t.Errorf("%v in %s", err, found)
	}
}
