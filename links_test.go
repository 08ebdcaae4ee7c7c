// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(<?([^)\s>]+)>?\)`)
	heading = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	target  = regexp.MustCompile(`<a (?:id|name)="([^"]+)">`)
	linked  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

	code = regexp.MustCompile("`[^`]*`")
	// hidden matches a placeholder in prose that is not escaped: GitHub takes it for HTML and removes it.
	hidden = regexp.MustCompile(`(?:^|[^\\])(<[a-z][a-z -]*>)`)
	// capitals matches a command with a placeholder as usage lines have it.
	capitals = regexp.MustCompile("(?:kubectl|nodegate|helm) [^|`#\n]*[ /.=](?:NODE|GATE|NAME|NAMESPACE|NS|DAEMONSET|KEY|FILE|DIR|TAG|REVISION)\\b")
	usage    = []string{"docs/reference/kubectl-gate.md", "docs/reference/programs.md"}
)

// proseOf returns a page without its code, which contains no links or headings.
func proseOf(page string) string {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(page) {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(trimmed, "```"):
			fence = "```"
		case fence != "":
			if trimmed == fence {
				fence = ""
			}
		default:
			b.WriteString(line)
		}
	}
	return b.String()
}

// anchors returns the anchors that GitHub generates for a page's headings, and
// those that the page sets.
func anchors(page string) map[string]bool {
	found := make(map[string]bool)
	for line := range strings.Lines(proseOf(page)) {
		for _, match := range target.FindAllStringSubmatch(line, -1) {
			found[match[1]] = true
		}
		match := heading.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if match == nil {
			continue
		}
		name := slug(match[1])
		for i, first := 1, name; found[name]; i++ {
			name = fmt.Sprintf("%s-%d", first, i)
		}
		found[name] = true
	}
	return found
}

// slug returns the anchor that GitHub generates for a heading.
func slug(heading string) string {
	heading = linked.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// checkLink returns an error if a link within the repository is broken.
func checkLink(page, to string) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" {
		return err
	}
	path := page
	if u.Path != "" {
		path = filepath.Join(filepath.Dir(page), filepath.FromSlash(u.Path))
	}
	if strings.HasPrefix(path, "..") {
		return errors.New("the target is outside of the repository")
	}
	if _, err := os.Stat(path); err != nil || u.Fragment == "" || filepath.Ext(path) != ".md" {
		return err
	}
	text, err := os.ReadFile(path)
	if err == nil && !anchors(string(text))[u.Fragment] {
		err = fmt.Errorf("%s has no heading #%s", path, u.Fragment)
	}
	return err
}

// Every link to a page or to a heading must have an existing target.
func TestLinksHaveTargets(t *testing.T) {
	links := 0
	for _, page := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(proseOf(read(t, page)), -1) {
			links++
			if err := checkLink(page, match[1]); err != nil {
				t.Errorf("%s links to %s: %v", page, match[1], err)
			}
		}
	}
	if links < 150 {
		t.Errorf("only %d links were found", links)
	}
}

// Every page must be reachable from the README by links.
func TestEveryPageIsReachable(t *testing.T) {
	reached := map[string]bool{"README.md": true}
	for todo := []string{"README.md"}; len(todo) > 0; todo = todo[1:] {
		for _, match := range link.FindAllStringSubmatch(proseOf(read(t, todo[0])), -1) {
			u, err := url.Parse(match[1])
			if err != nil || u.Scheme != "" || u.Path == "" {
				continue
			}
			path := filepath.Join(filepath.Dir(todo[0]), filepath.FromSlash(u.Path))
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				reached[path] = true // GitHub lists what is in it
				path = filepath.Join(path, "README.md")
			}
			if _, err := os.Stat(path); err == nil && filepath.Ext(path) == ".md" && !reached[path] {
				reached[path] = true
				todo = append(todo, path)
			}
		}
	}
	for _, page := range pages(t) {
		if !reached[page] && !reached[filepath.Dir(page)] {
			t.Errorf("%s is not reachable from the README", page)
		}
	}
}

// Pages write placeholders as kubernetes.io does: kubectl gate why <node>. Only the usage
// lines of commands have capitals, as those of kubectl.
func TestPlaceholders(t *testing.T) {
	for _, page := range pages(t) {
		text := read(t, page)
		for _, match := range hidden.FindAllStringSubmatch(code.ReplaceAllString(proseOf(text), "code"), -1) {
			t.Errorf("%s: GitHub does not display %s: write it as code", page, match[1])
		}
		if found := capitals.FindString(text); found != "" && !slices.Contains(usage, page) {
			t.Errorf("%s: write the placeholder in %q in lower case and angle brackets", page, found)
		}
	}
}

func TestSlug(t *testing.T) {
	for heading, want := range map[string]string{
		"What a taint cannot do":               "what-a-taint-cannot-do",
		"A node is held. Why?":                 "a-node-is-held-why",
		"`nodegate convert`, and [more](x.md)": "nodegate-convert-and-more",
		"openWhen[] - a_b":                     "openwhen---a_b",
		"Größe 2":                              "größe-2",
	} {
		if got := slug(heading); got != want {
			t.Errorf("the anchor of %q is %q, want %q", heading, got, want)
		}
	}
}
