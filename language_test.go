// SPDX-License-Identifier: Apache-2.0

package nodegate_test

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// privatePhrases are words of the project's own early language, which readers had to
// decode, each with what to write instead.
var privatePhrases = []struct{ phrase, instead string }{
	{`(tells?|says) whether`, "reports whether"},
	{`whoever|whomever`, "the user, the client, the writer"},
	{`somebody`, "a user, another client"},
	{`whyever`, "for any reason"},
	{`mend|mends|mended|mending`, "fix, repair, correct"},
	{`(is|are|be|was|were) told`, "is reported, is passed"},
	{`(falls?|fell|fallen) silent`, "becomes unreachable"},
	{`heard of`, "known, synced"},
	{`stands? in line`, "is queued, waits for budget"},
	{`(stands?|standing) there`, "exists, is present"},
	{`at home`, "its own"},
	{`minds|heeds?|heeded`, "considers, obeys"},
	{`in the light of`, "based on"},
	{`undoes`, "reverts"},
	{`word of`, "evidence of"},
	{`(takes?|taken) off`, "removes"},
	{`lets? go`, "releases, removes"},
	{`news of`, "a change of"},
	{`looks at it again|looked at again|look again`, "is reconciled again, lists again"},
	{`of before`, "previous, from before the …"},
	{`a person|a person's`, "a user"},
	{`speaks`, "reports"},
	{`in vain`, "without success"},
	{`it is there`, "it exists"},
	{`lifts?|lifted`, "removes (a taint)"},
	{`of old`, "previous"},
	{`as it were`, ""},
	{`because of which`, "that requires, that prevents"},
}

// spoken has the phrases as one expression.
var spoken = func() *regexp.Regexp {
	var all []string
	for _, p := range privatePhrases {
		all = append(all, p.phrase)
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(all, "|") + `)\b`)
}()

// TestLanguage finds the worst phrases in everything that people read. Generated results
// of earlier runs are as they were.
func TestLanguage(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "-co", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("listing files: %v", err)
	}
	exempt := []string{"language_test.go", "LICENSE", "bench/RESULTS.md", "CODE_OF_CONDUCT.md"}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if slices.Contains(exempt, name) || strings.Contains(name, "testdata/") ||
			!slices.Contains([]string{".go", ".md", ".yaml", ".yml", ".sh", ".tpl", ".txt"}, path.Ext(name)) && path.Base(name) != "Makefile" {
			continue
		}
		content, err := os.ReadFile(name)
		if os.IsNotExist(err) { // deleted, not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(content)) {
			number++
			if found := spoken.FindString(line); found != "" {
				t.Errorf("%s:%d: write %q instead of %q", name, number, instead(found), found)
			}
		}
	}
}

// instead returns what to write instead of a phrase.
func instead(found string) string {
	for _, p := range privatePhrases {
		if regexp.MustCompile(`(?i)^(` + p.phrase + `)$`).MatchString(found) {
			return p.instead
		}
	}
	return ""
}

func TestPhrases(t *testing.T) {
	if len(privatePhrases) > 40 {
		t.Errorf("%d phrases, want at most 40: more than one can remember", len(privatePhrases))
	}
	for text, want := range map[string]string{
		"It TELLS WHETHER it is so":        "TELLS WHETHER",
		"The node falls silent.":           "falls silent",
		"It reports whether it is so":      "",
		"the shelf lifted, recommend ends": "lifted",
		"foretold unspeaks":                "",
	} {
		if got := spoken.FindString(text); got != want {
			t.Errorf("in %q, found %q, want %q", text, got, want)
		}
	}
}
