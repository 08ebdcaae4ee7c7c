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
	// span matches inline code.
	span = regexp.MustCompile("`([^`]+)`")
	// placeholder matches a placeholder in a command line, such as <node>.
	placeholder = regexp.MustCompile(`<[a-zA-Z -]+>`)
	operator    = regexp.MustCompile(`^(?:\|\|?|&&?|;|\d?>>?&?\d?|<<?)$`)
)

// parseOurs returns the command of a command line that starts one of our programs, and its
// arguments.
func parseOurs(words []string) (*cobra.Command, []string) {
	switch {
	case len(words) > 2 && words[0] == "kubectl" && words[1] == "gate":
		return cli.Command(), words[2:]
	case len(words) > 1 && filepath.Base(words[0]) == "nodegate":
		return newRoot(), words[1:]
	}
	return nil, nil
}

// argumentError returns the error with which a program would reject these arguments. For command
// lines that are quoted in a text, only the verb and the flags are checked.
func argumentError(root *cobra.Command, args []string, quoted bool) error {
	command, rest, err := root.Find(args)
	switch {
	case err != nil:
		return err
	case command == root && !strings.HasPrefix(args[0], "-"):
		return fmt.Errorf("unknown verb %q", args[0])
	}
	if err := command.ParseFlags(rest); err != nil || quoted {
		return err
	}
	if err := command.ValidateRequiredFlags(); err != nil {
		return err
	}
	return command.ValidateArgs(command.Flags().Args())
}

// shellWords splits a line approximately like a shell: operators are separate words, and
// comments are omitted.
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

// commandLines returns the commands that a line of shell starts.
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

// onPage returns the command lines of a page: those in code blocks, and those that the text
// quotes.
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

// Command lines of our programs on pages have existing verbs and flags, and all required
// arguments.
func TestCommandsOnPages(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		typed, quoted := onPage(string(text))
		for i, words := range slices.Concat(typed, quoted) {
			root, args := parseOurs(words)
			if root == nil {
				continue
			}
			seen++
			if err := argumentError(root, args, i >= len(typed)); err != nil {
				t.Errorf("%s: %q: %v", path, strings.Join(words, " "), err)
			}
		}
		return err
	})
	if err != nil || seen < 60 {
		t.Errorf("found %d commands: %v", seen, err)
	}
}

// TestCommandsOnPages finds errors in all parts of a line.
func TestCommandsOnPagesFindsErrors(t *testing.T) {
	for line, want := range map[string]string{
		"kubectl gate why n1 | grep x":                                             "",
		"kubectl gate open <node> --gate a --for 1h --reason 'it is \"so\"' # why": "",
		"cat x | bin/nodegate convert istio - > y && kubectl gate status --out x":  "unknown flag: --out",
		"FOO=bar kubectl gate status -o xml":                                       `unknown output format "xml"`,
		"kubectl gate open n1 --for 1h --reason x":                                 "--gate is required",
		"kubectl gate stauts":                                                      `unknown command "stauts"`,
		"nodegate controller --workers=many":                                       "invalid argument",
		"$ kubectl gate timeline":                                                  "exactly one node name",
	} {
		found := ""
		typed, _ := onPage("```sh\n" + line + "\n```\n")
		for _, words := range typed {
			if root, args := parseOurs(words); root == nil {
				continue
			} else if err := argumentError(root, args, false); err != nil {
				found += err.Error()
			}
		}
		if (want == "") != (found == "") || !strings.Contains(found, want) {
			t.Errorf("%q: found %q, want %q", line, found, want)
		}
	}
}
