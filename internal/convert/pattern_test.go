// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// whole matches as a gate does.
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

// pieces are what expressions are put together from.
var pieces = []string{
	"", "^", "$", "a", "b", "Ready", "|", ".", ".*", "(a|b)", "(?:a$|^b)", "[ab]", "[^a]", `\.`, `\d`, "(?i)", "x?", "a{2}", "(^a)", "()", "(?m)",
}

// What a gate compares with whole texts is what Tainter finds in them.
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
			if subject != "" && p.matchesAll() && !p.matches(subject) {
				t.Fatalf("%q is said to match everything, and does not match %q", text, subject)
			}
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
		if got := p.matchesAll(); got != want {
			t.Errorf("%q: got %v, want %v", pattern, got, want)
		}
	}
}

// Rust's expressions that RE2 cannot read, or reads in another way.
func TestRustPatterns(t *testing.T) {
	for pattern, says := range map[string]string{
		"[a-z&&[^b]]": "set operations", "[a--b]": "set operations", "[a~~b]": "set operations", "[a[b]]": "classes within classes",
		`\b{start}a`: `no \b{...}`, `\<a\>`: `write \b`, `a{`: "repetition", "a{,3}": "repetition", "{a}": "repetition",
		`\Qa\E`: "refuses", `\1`: "refuses", "(?x) a": "cannot read", `\u{61}`: "cannot read", "(": "cannot read", "a**": "cannot read",
		"(?-u)a": "cannot read", "[": "cannot read", `\`: "cannot read", "a{1001}": "cannot read",
	} {
		if _, err := readPattern(pattern); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", pattern, err, says)
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
