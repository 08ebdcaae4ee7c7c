// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// whole matches like a gate: the whole text.
func whole(exact, expression, text string) bool {
	if expression == "" {
		return text == exact
	}
	return regexp.MustCompile("^(?:" + expression + ")$").MatchString(text)
}

func TestPatterns(t *testing.T) {
	for _, test := range []struct{ pattern, exact, expression, wholeExact, wholeExpression string }{
		{"Ready", "", ".*Ready.*", "Ready", ""},
		{"^Ready$", "Ready", "", "Ready", ""},
		{`\AReady\z`, "Ready", "", "Ready", ""},
		{"^Ready", "", "^Ready.*", "Ready", ""},
		{"Ready$", "", ".*Ready$", "Ready", ""},
		{"a|b", "", ".*(?:a|b).*", "", "a|b"},
		{"^a|b$", "", ".*(?:^a|b$).*", "", "^a|b$"},
		{"^a|^b", "", ".*(?:^a|^b).*", "", "^a|^b"},
		{"^(a|b)$", "", "^(a|b)$", "", "^(a|b)$"},
		{"(?i)ready", "", ".*(?i)ready.*", "", "(?i)ready"},
		{"", "", ".*", "", ".*"},
		{"^$", "", "^$", "", "^$"},
		{`a\.b`, "", `.*a\.b.*`, "a.b", ""},
		{"^", "", "^.*", "", "^"},
	} {
		p, err := readPattern(test.pattern)
		if err != nil {
			t.Errorf("%q: %v", test.pattern, err)
			continue
		}
		if exact, expression := p.gate(); exact != test.exact || expression != test.expression {
			t.Errorf("%q: got %q and %q, want %q and %q", test.pattern, exact, expression, test.exact, test.expression)
		}
		if exact, expression := p.whole(); exact != test.wholeExact || expression != test.wholeExpression {
			t.Errorf("%q as a whole: got %q and %q, want %q and %q", test.pattern, exact, expression, test.wholeExact, test.wholeExpression)
		}
	}
}

// pieces are parts from which expressions are generated.
var pieces = []string{
	"", "^", "$", "a", "b", "Ready", "|", ".", ".*", "(a|b)", "(?:a$|^b)", "[ab]", "[^a]", `\.`, `\d`, "(?i)", "x?", "a{2}", "(^a)", "()", "(?m)",
}

// A gate's expression matches a whole text if and only if Tainter finds the pattern in it.
func TestPatternsKeepTheirMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 6).Draw(t, "pattern"), "")
		p, err := readPattern(text)
		if err != nil {
			return
		}
		exact, expression := p.gate()
		for range 10 {
			subject := rapid.StringMatching(`[abR.1eady]{0,6}`).Draw(t, "subject")
			if want, got := regexp.MustCompile(text).MatchString(subject), whole(exact, expression, subject); got != want {
				t.Fatalf("%q found in %q: %v; %q, %q: %v", text, subject, want, exact, expression, got)
			}
			if subject != "" && matchesAll(p.matches) && !p.matches(subject) {
				t.Fatalf("matchesAll returned true for %q, which does not match %q", text, subject)
			}
			exact, expression := p.whole()
			if want, got := whole(exact, expression, subject), p.matchesWhole(subject); got != want {
				t.Fatalf("%q matches the whole of %q: %v, want %v", text, subject, got, want)
			}
		}
	})
}

// FuzzPattern searches for a pattern whose meaning changes in a gate.
func FuzzPattern(f *testing.F) {
	for i, piece := range pieces {
		f.Add(piece, "Ready")
		f.Add(piece+pieces[(i+7)%len(pieces)], "ab")
	}
	f.Fuzz(func(t *testing.T, text, subject string) {
		p, err := readPattern(text)
		if err != nil || len(text) > 256 || strings.ContainsAny(subject, "\r\n") || !utf8.ValidString(subject) {
			return // types and statuses of conditions contain no newlines
		}
		exact, expression := p.gate()
		if expression != "" {
			if _, err := regexp.Compile("^(?:" + expression + ")$"); err != nil {
				return // it is too large for a gate, so the API's rules reject it
			}
		}
		want := regexp.MustCompile(text).MatchString(subject)
		if got := whole(exact, expression, subject); got != want || p.matches(subject) != want {
			t.Errorf("%q found in %q: %v, %v; %q, %q: %v", text, subject, want, p.matches(subject), exact, expression, got)
		}
	})
}

func TestPatternsThatMatchEverything(t *testing.T) {
	for pattern, want := range map[string]bool{
		"": true, ".*": true, "^.*$": true, "^": true, "$": true, "a*": true, ".": true, ".+": true, "^.+$": true, "(|a)": true, "x{0,2}": true,
		"^$": false, "a": false, "a|b": false, "^.$": false, "^a": false, "a+": false, "..": false, ".+.": false, ".*.": true, "^a*$": false,
	} {
		p, err := readPattern(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := matchesAll(p.matches); got != want {
			t.Errorf("%q: got %v, want %v", pattern, got, want)
		}
	}
}

// Rust expressions that RE2 cannot parse or interprets differently are rejected.
func TestRustPatterns(t *testing.T) {
	for pattern, want := range map[string]string{
		"[a-z&&[^b]]": "set operations", "[a--b]": "set operations", "[a~~b]": "set operations", "[a[b]]": "nested classes",
		`\b{start}a`: `does not support \b{...}`, `\<a\>`: `write \b`, `a{`: "repetition", "a{,3}": "repetition", "{a}": "repetition",
		`\Qa\E`: "rejects", `\1`: "rejects", "(?x) a": "cannot parse", `\u{61}`: "cannot parse", "(": "cannot parse", "a**": "cannot parse",
		"(?-u)a": "cannot parse", "[": "cannot parse", `\`: "cannot parse", "a{1001}": "cannot parse",
	} {
		if _, err := readPattern(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", pattern, err, want)
		}
	}
	for pattern, ascii := range map[string]string{
		`\d`: `\d`, `[\w-]+`: `\w`, `a\b`: `\b`, "[[:alpha:]]": "", `\p{Greek}`: "", `\x{61}`: "", "a{2,}": "", `\{`: "", "[]a]": "", "[^]a]": "", `[\]&]`: "",
	} {
		p, err := readPattern(pattern)
		if err != nil || p.ascii != ascii {
			t.Errorf("%q: got %v, %v, want %q", pattern, p, err, ascii)
		}
	}
}
