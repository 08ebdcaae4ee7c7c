// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nodegate/nodegate/internal/cli"
)

var (
	// span is a piece of code within a line of text.
	span = regexp.MustCompile("`([^`]+)`")
	// placeholder stands for something in a command line, as in <node>.
	placeholder = regexp.MustCompile(`<[a-zA-Z -]+>`)
	operator    = regexp.MustCompile(`^(?:\|\|?|&&?|;|\d?>>?&?\d?|<<?)$`)
)

// ours says which of our programs a command line starts, and with which arguments.
func ours(words []string) (*cobra.Command, []string) {
	switch {
	case len(words) > 2 && words[0] == "kubectl" && words[1] == "gate":
		return cli.Command(), words[2:]
	case len(words) > 1 && filepath.Base(words[0]) == "nodegate":
		return newRoot(), words[1:]
	}
	return nil, nil
}

// refuses says why a program would refuse these arguments before it does anything.
// Of what is quoted in a text only verb and flags have to be there.
func refuses(root *cobra.Command, args []string, quoted bool) error {
	command, rest, err := root.Find(args)
	switch {
	case err != nil:
		return err
	case command == root && !strings.HasPrefix(args[0], "-"):
		return fmt.Errorf("there is no verb %q", args[0])
	}
	if err := command.ParseFlags(rest); err != nil || quoted {
		return err
	}
	if err := command.ValidateRequiredFlags(); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}

// shellWords splits a line as a shell does, roughly: operators are words of their
// own, and a comment is none.
func shellWords(line string) []string {
	var words []string
	var word strings.Builder
	begun, quote := false, rune(0)
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == '#' && !begun:
			return words
		case r == ' ' || r == '\n':
			end()
		case r == ';' || r == ')' || r == '(':
			end()
			words = append(words, ";")
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	end()
	return words
}

// commandLines are what a line of a shell starts, one after the other.
func commandLines(line string) [][]string {
	var all [][]string
	var one []string
	redirected := false
	for _, word := range append(shellWords(placeholder.ReplaceAllString(line, "x")), ";") {
		switch {
		case redirected:
			redirected = false
		case operator.MatchString(word):
			if redirected = strings.ContainsAny(word, "<>") && !strings.Contains(word, "&"); !redirected {
				all, one = append(all, one), nil
			}
		case len(one) == 0 && (word == "$" || strings.Contains(word, "=")):
		default:
			one = append(one, word)
		}
	}
	return all
}

// onPage returns the command lines of a page: those to be typed as they are, and
// those that its text quotes.
func onPage(page string) (typed, quoted [][]string) {
	fence, before := "", ""
	for line := range strings.Lines(page) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fence = map[bool]string{true: trimmed}[fence == ""]
		case fence == "```sh" || fence == "```console" && (before != "" || strings.HasPrefix(trimmed, "$")):
			if rest, goesOn := strings.CutSuffix(trimmed, `\`); goesOn {
				before += rest + " "
				continue
			}
			typed = append(typed, commandLines(before+trimmed)...)
			before = ""
		case fence == "":
			for _, match := range span.FindAllStringSubmatch(line, -1) {
				quoted = append(quoted, commandLines(match[1])...)
			}
		}
	}
	return typed, quoted
}

// Whoever copies a command of ours from a page is not told that there is no such
// verb or flag, or that an argument is missing.
func TestCommandsOnPages(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		typed, quoted := onPage(string(text))
		for i, words := range slices.Concat(typed, quoted) {
			root, args := ours(words)
			if root == nil {
				continue
			}
			seen++
			if err := refuses(root, args, i >= len(typed)); err != nil {
				t.Errorf("%s: %q: %v", path, strings.Join(words, " "), err)
			}
		}
		return err
	})
	if err != nil || seen < 60 {
		t.Errorf("%d commands were found: %v", seen, err)
	}
}

// What is wrong is found, wherever in a line it is.
func TestCommandsOnPagesFindsWhatIsWrong(t *testing.T) {
	for line, says := range map[string]string{
		"kubectl gate why n1 | grep x":                                             "",
		"kubectl gate open <node> --gate a --for 1h --reason 'it is \"so\"' # why": "",
		"cat x | bin/nodegate convert istio - > y && kubectl gate status --out x":  "unknown flag: --out",
		"FOO=bar kubectl gate status -o xml":                                       `no output format "xml"`,
		"kubectl gate open n1 --for 1h --reason x":                                 "say which gate",
		"kubectl gate stauts":                                                      `unknown command "stauts"`,
		"nodegate controller --workers=many":                                       "invalid argument",
		"$ kubectl gate timeline":                                                  "one node",
	} {
		found := ""
		typed, _ := onPage("```sh\n" + line + "\n```\n")
		for _, words := range typed {
			if root, args := ours(words); root == nil {
				continue
			} else if err := refuses(root, args, false); err != nil {
				found += err.Error()
			}
		}
		if (says == "") != (found == "") || !strings.Contains(found, says) {
			t.Errorf("of %q it finds %q, want %q", line, found, says)
		}
	}
}
