// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/report"
)

var pages = flag.String("pages", "", "the directory to write sample pages to")

const megabyte = 1_000_000

// hostile is a name that a browser must not execute.
const hostile = `</script><script>document.title='x'</script><img src=x onerror=alert(1)>"'&<!--`

// hostileFleet has hostile names only.
func hostileFleet() *report.Facts {
	bad := newFleet(4)
	bad.hostile = hostile
	for i := range bad.gates.Gates {
		bad.gates.Gates[i].Name += hostile
	}
	facts := bad.facts(60, 6)
	facts.Unread = []string{hostile}
	return facts
}

// aheadFleet is a fleet whose API server's clock is ahead of the report's.
func aheadFleet() *report.Facts {
	facts := newFleet(3).facts(40, 4)
	facts.Time = facts.Time.AddDate(-1, 0, 0)
	return facts
}

func html(t testing.TB, f *report.Facts) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := report.New(f).WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSamplePages writes the pages that 'make test-ui' opens in a browser, to
// -pages if it is given.
func TestSamplePages(t *testing.T) {
	dir := *pages
	if dir == "" {
		dir = t.TempDir()
	}
	for name, f := range map[string]*report.Facts{
		"fleet":   newFleet(1).facts(5000, 250),
		"healthy": newFleet(2).facts(40, 1_000_000),
		"empty":   {Time: now, Gates: &gateset.Set{}},
		"hostile": hostileFleet(),
		"ahead":   aheadFleet(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".html"), html(t, f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A page about 5,000 nodes is small enough for e-mail, even with many gates.
func TestPageOfALargeFleetIsSmall(t *testing.T) {
	many := newFleet(3).facts(5000, 100)
	for i := range many.Nodes {
		n := &many.Nodes[i]
		for len(n.Gates) < 12 {
			n.Gates = append(n.Gates, n.Gates[0])
		}
	}
	for name, f := range map[string]*report.Facts{"three gates": newFleet(1).facts(5000, 100), "twelve gates": many} {
		if size := len(html(t, f)); size > 5*megabyte {
			t.Errorf("%s: the page has %d bytes", name, size)
		} else {
			t.Logf("%s: the page has %d bytes", name, size)
		}
	}
}

// No name becomes markup, and nothing is loaded.
func TestPageOfHostileNames(t *testing.T) {
	page := string(html(t, hostileFleet()))
	if n := strings.Count(strings.ToLower(page), "</script"); n != 2 {
		t.Errorf("the page has %d script end tags, want those of the data and of the script", n)
	}
	for _, markup := range []string{"<img", "<script>document", "<!--", "http://", "https://"} {
		if strings.Contains(page, markup) {
			t.Errorf("the page contains %q", markup)
		}
	}
	if !strings.Contains(page, "&lt;img") || !strings.Contains(page, `\u003cimg`) {
		t.Error("the page does not contain the names as text and as data")
	}
}

func BenchmarkReport(b *testing.B) {
	for _, size := range []int{500, 5000} {
		b.Run(fmt.Sprint(size, "nodes"), func(b *testing.B) {
			for b.Loop() {
				html(b, newFleet(1).facts(size, 100))
			}
		})
	}
}
