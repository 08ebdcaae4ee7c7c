// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// pattern is a regular expression in Rust's syntax that matches anywhere in a text, parsed
// as RE2.
type pattern struct {
	text string
	tree *syntax.Regexp
	// begins and ends specify whether the pattern is anchored at the beginning and the end.
	begins, ends bool
	// ascii is a character class that is limited to ASCII in RE2, but not in Rust.
	ascii string
	// compiled and longest are set on first use, because most patterns are literals. longest
	// prefers the longest match, which is the whole text if that matches.
	compiled, longest *regexp.Regexp
}

// readPattern parses a pattern. It returns an error if RE2 cannot parse the pattern or
// would interpret it differently.
func readPattern(text string) (*pattern, error) {
	p := &pattern{text: text}
	var err error
	if p.ascii, err = rust(text); err != nil {
		return nil, err
	}
	if p.tree, err = syntax.Parse(text, syntax.Perl); err != nil {
		return nil, fmt.Errorf("gates use RE2, which cannot parse it: %w", err)
	}
	first, last := p.tree, p.tree
	if p.tree.Op == syntax.OpConcat {
		first, last = p.tree.Sub[0], p.tree.Sub[len(p.tree.Sub)-1]
	}
	p.begins, p.ends = first.Op == syntax.OpBeginText, last.Op == syntax.OpEndText
	return p, nil
}

// gate returns the equivalent of the pattern in a gate, which compares whole texts: either
// an exact text or an expression.
func (p *pattern) gate() (exact, expression string) {
	if exact, ok := p.literal(); ok && p.begins && p.ends {
		return exact, ""
	}
	if p.begins && p.ends {
		return "", p.text
	}
	if p.text == "" {
		return "", ".*"
	}
	expression = p.text
	if strings.Contains(expression, "|") {
		expression = "(?:" + expression + ")"
	}
	if !p.begins {
		expression = ".*" + expression
	}
	if !p.ends {
		expression += ".*"
	}
	return "", expression
}

// whole returns the pattern for the whole text, which the author may have intended.
func (p *pattern) whole() (exact, expression string) {
	if exact, ok := p.literal(); ok && exact != "" {
		return exact, ""
	}
	if p.text == "" {
		return "", ".*"
	}
	return "", p.text
}

// literal returns the text that the pattern matches, if it is a literal.
func (p *pattern) literal() (string, bool) {
	core := []*syntax.Regexp{p.tree}
	if p.tree.Op == syntax.OpConcat {
		core = p.tree.Sub
		if p.begins {
			core = core[1:]
		}
		if p.ends {
			core = core[:len(core)-1]
		}
	}
	if len(core) != 1 || core[0].Op != syntax.OpLiteral || core[0].Flags&syntax.FoldCase != 0 {
		return "", false
	}
	return string(core[0].Rune), true
}

// loose reports whether the pattern is not anchored at both ends.
func (p *pattern) loose() bool { return !p.begins || !p.ends }

// matches reports whether a text contains a match.
func (p *pattern) matches(text string) bool {
	if word, ok := p.literal(); ok {
		switch {
		case p.begins && p.ends:
			return text == word
		case p.begins:
			return strings.HasPrefix(text, word)
		case p.ends:
			return strings.HasSuffix(text, word)
		}
		return strings.Contains(text, word)
	}
	if p.compiled == nil {
		p.compiled = regexp.MustCompile(p.text) // readPattern has parsed it
	}
	return p.compiled.MatchString(text)
}

// matchesWhole reports whether the pattern, as returned by whole, matches a text.
func (p *pattern) matchesWhole(text string) bool {
	exact, expression := p.whole()
	if exact != "" {
		return text == exact
	}
	if p.longest == nil {
		p.longest = regexp.MustCompile(expression) // readPattern has parsed it
		p.longest.Longest()
	}
	at := p.longest.FindStringIndex(text)
	return at != nil && at[0] == 0 && at[1] == len(text)
}

// samples are texts that only a pattern for any text matches: each printable character of
// ASCII, and a text that is too long for repetitions.
var samples = func() []string {
	all := []string{strings.Repeat("~", 1001)}
	for r := ' '; r <= '~'; r++ {
		all = append(all, string(r))
	}
	return all
}()

// matchesAll reports whether a pattern, given by its function, matches every non-empty text.
func matchesAll(matches func(string) bool) bool {
	return !slices.ContainsFunc(samples, func(sample string) bool { return !matches(sample) })
}

var repetition = regexp.MustCompile(`^\{\d+(,\d*)?\}`)

// rust returns an error if Rust's regular expressions and RE2 both accept a pattern but
// interpret it differently. It returns a character class that is limited to ASCII in RE2.
func rust(text string) (ascii string, err error) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\', '[':
			check := rustEscape
			if text[i] == '[' {
				check = rustClass
			}
			n, class, err := check(text[i:])
			if err != nil {
				return "", err
			}
			ascii = cmp.Or(ascii, class)
			i += n - 1
		case '{':
			if !repetition.MatchString(text[i:]) {
				return "", errors.New(`"{" does not start a repetition such as {2} or {2,5}, and RE2 treats it as a literal: write "\{"`)
			}
		}
	}
	return ascii, nil
}

// rustEscape checks an escape sequence and returns its length.
func rustEscape(text string) (length int, ascii string, err error) {
	if len(text) < 2 {
		return len(text), "", nil // the parser rejects it
	}
	length = 2
	switch c := text[1]; c {
	case 'b', 'B', 'd', 'D', 's', 'S', 'w', 'W':
		ascii = text[:2]
		if c == 'b' && strings.HasPrefix(text[2:], "{") {
			return 0, "", errors.New(`RE2 does not support \b{...}`)
		}
	case '<', '>':
		return 0, "", fmt.Errorf(`\%c matches the start or end of a word in Tainter, but is a literal in RE2: write \b`, c)
	case 'Q', '0', '1', '2', '3', '4', '5', '6', '7':
		return 0, "", fmt.Errorf(`Tainter rejects \%c`, c)
	case 'p', 'P', 'x':
		if strings.HasPrefix(text[2:], "{") {
			if end := strings.IndexByte(text, '}'); end > 0 {
				length = end + 1
			}
		}
	}
	return length, ascii, nil
}

// rustClass checks a bracket expression and returns its length.
func rustClass(text string) (length int, ascii string, err error) {
	i := 1
	if strings.HasPrefix(text[i:], "^") {
		i++
	}
	if strings.HasPrefix(text[i:], "]") {
		i++ // a leading ] is a literal
	}
	for i < len(text) {
		switch {
		case text[i] == ']':
			return i + 1, ascii, nil
		case text[i] == '\\':
			n, class, err := rustEscape(text[i:])
			if err != nil {
				return 0, "", err
			}
			ascii = cmp.Or(ascii, class)
			i += n
		case strings.HasPrefix(text[i:], "[:"):
			end := strings.Index(text[i:], ":]")
			if end < 0 {
				return 0, "", errors.New(`"[:" has no ":]"`)
			}
			i += end + 2
		case text[i] == '[', strings.HasPrefix(text[i:], "&&"), strings.HasPrefix(text[i:], "--"), strings.HasPrefix(text[i:], "~~"):
			return 0, "", errors.New(`RE2 does not support nested classes and set operations (&&, --, ~~), and treats them as literals: expand the class`)
		default:
			i++
		}
	}
	return len(text), ascii, nil // the parser rejects it
}
