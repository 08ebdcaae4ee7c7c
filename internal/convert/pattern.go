// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// pattern is a regular expression of Rust's syntax that looks for something
// anywhere in a text, as RE2 reads it.
type pattern struct {
	text string
	tree *syntax.Regexp
	// begins and ends tell whether it is anchored there.
	begins, ends bool
	// ascii names a class that is smaller in RE2, which knows it for ASCII only.
	ascii string
	// compiled is made when it is needed: most patterns are plain words.
	compiled *regexp.Regexp
}

// readPattern refuses what RE2 cannot read, and what it would read in another
// way without a word.
func readPattern(text string) (*pattern, error) {
	p := &pattern{text: text}
	var err error
	if p.ascii, err = rust(text); err != nil {
		return nil, err
	}
	if p.tree, err = syntax.Parse(text, syntax.Perl); err != nil {
		return nil, fmt.Errorf("RE2, the syntax of gates, cannot read it: %w", err)
	}
	first, last := p.tree, p.tree
	if p.tree.Op == syntax.OpConcat {
		first, last = p.tree.Sub[0], p.tree.Sub[len(p.tree.Sub)-1]
	}
	p.begins, p.ends = first.Op == syntax.OpBeginText, last.Op == syntax.OpEndText
	return p, nil
}

// gate returns what says the same in a gate, which compares whole texts: the
// text itself, or an expression.
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

// whole returns what the author may have thought of: the whole text.
func (p *pattern) whole() (exact, expression string) {
	if exact, ok := p.literal(); ok && exact != "" {
		return exact, ""
	}
	if p.text == "" {
		return "", ".*"
	}
	return "", p.text
}

// literal returns the text that the pattern looks for, if it is only one.
func (p *pattern) literal() (string, bool) {
	if p.tree.Op != syntax.OpLiteral && p.tree.Op != syntax.OpConcat {
		return "", false
	}
	core := p.core()
	if len(core) != 1 || core[0].Op != syntax.OpLiteral || core[0].Flags&syntax.FoldCase != 0 {
		return "", false
	}
	return string(core[0].Rune), true
}

// loose tells whether it may match more than it says.
func (p *pattern) loose() bool { return !p.begins || !p.ends }

// matches tells whether a text contains a match.
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
		p.compiled = regexp.MustCompile(p.text) // it has been parsed
	}
	return p.compiled.MatchString(text)
}

// matchesAll tells whether it matches every text that is not empty. Of some
// that do it does not know.
func (p *pattern) matchesAll() bool {
	anything := !p.begins || !p.ends
	characters := 0 // that it asks for
	for _, sub := range p.core() {
		switch {
		case isAnyOne(sub):
			if p.begins && p.ends && sub.Op != syntax.OpPlus {
				return false // one character only
			}
			characters++
			anything = true
		case sub.Op == syntax.OpStar && isAnyOne(sub.Sub[0]):
			anything = true
		case !mayBeNothing(sub):
			return false
		}
	}
	return anything && characters <= 1
}

// core is the expression without its anchors.
func (p *pattern) core() []*syntax.Regexp {
	subs := []*syntax.Regexp{p.tree}
	if p.tree.Op == syntax.OpConcat {
		subs = p.tree.Sub
	}
	return slices.DeleteFunc(slices.Clone(subs), func(sub *syntax.Regexp) bool {
		return sub == subs[0] && p.begins || sub == subs[len(subs)-1] && p.ends
	})
}

// mayBeNothing tells whether the expression matches the empty text at any place.
func mayBeNothing(tree *syntax.Regexp) bool {
	switch tree.Op {
	case syntax.OpEmptyMatch, syntax.OpStar, syntax.OpQuest:
		return true
	case syntax.OpRepeat:
		return tree.Min == 0 || mayBeNothing(tree.Sub[0])
	case syntax.OpCapture, syntax.OpPlus:
		return mayBeNothing(tree.Sub[0])
	case syntax.OpAlternate:
		return slices.ContainsFunc(tree.Sub, mayBeNothing)
	case syntax.OpConcat:
		return !slices.ContainsFunc(tree.Sub, func(sub *syntax.Regexp) bool { return !mayBeNothing(sub) })
	}
	return false
}

// isAnyOne tells whether the expression matches any one character.
func isAnyOne(tree *syntax.Regexp) bool {
	switch tree.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	case syntax.OpCapture, syntax.OpPlus:
		return isAnyOne(tree.Sub[0])
	}
	return false
}

var repetition = regexp.MustCompile(`^\{\d+(,\d*)?\}`)

// rust looks for what Rust's regular expressions and RE2 both accept, and read
// in different ways. It returns a class that RE2 knows for ASCII only.
func rust(text string) (ascii string, err error) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			n, class, err := rustEscape(text[i:])
			if err != nil {
				return "", err
			}
			if ascii == "" {
				ascii = class
			}
			i += n - 1
		case '{':
			if !repetition.MatchString(text[i:]) {
				return "", errors.New(`"{" does not begin a repetition such as {2} or {2,5}, and RE2 reads it as itself: write "\{"`)
			}
		case '[':
			n, class, err := rustClass(text[i:])
			if err != nil {
				return "", err
			}
			if ascii == "" {
				ascii = class
			}
			i += n - 1
		}
	}
	return ascii, nil
}

// rustEscape looks at what begins with a backslash, and returns its length.
func rustEscape(text string) (length int, ascii string, err error) {
	if len(text) < 2 {
		return len(text), "", nil // refused by the parser
	}
	length = 2
	switch c := text[1]; c {
	case 'b', 'B', 'd', 'D', 's', 'S', 'w', 'W':
		ascii = text[:2]
		if c == 'b' && strings.HasPrefix(text[2:], "{") {
			return 0, "", errors.New(`RE2 has no \b{...}`)
		}
	case '<', '>':
		return 0, "", fmt.Errorf(`\%c is the beginning or end of a word for Tainter and itself in RE2: write \b`, c)
	case 'Q', '0', '1', '2', '3', '4', '5', '6', '7':
		return 0, "", fmt.Errorf(`Tainter refuses \%c`, c)
	case 'p', 'P', 'x':
		if strings.HasPrefix(text[2:], "{") {
			if end := strings.IndexByte(text, '}'); end > 0 {
				length = end + 1
			}
		}
	}
	return length, ascii, nil
}

// rustClass looks at what begins with a bracket, and returns its length.
func rustClass(text string) (length int, ascii string, err error) {
	i := 1
	if strings.HasPrefix(text[i:], "^") {
		i++
	}
	if strings.HasPrefix(text[i:], "]") {
		i++ // the first is itself
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
			if ascii == "" {
				ascii = class
			}
			i += n
		case strings.HasPrefix(text[i:], "[:"):
			end := strings.Index(text[i:], ":]")
			if end < 0 {
				return 0, "", errors.New(`"[:" has no ":]"`)
			}
			i += end + 2
		case text[i] == '[', strings.HasPrefix(text[i:], "&&"), strings.HasPrefix(text[i:], "--"), strings.HasPrefix(text[i:], "~~"):
			return 0, "", errors.New(`RE2 has no classes within classes and no set operations (&&, --, ~~), and reads them as plain characters: write the class out`)
		default:
			i++
		}
	}
	return len(text), ascii, nil // refused by the parser
}
