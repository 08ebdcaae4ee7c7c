// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/internal/gate"
)

// Formats that some verbs have beside json and yaml.
const (
	// formatWide is for people, and says more.
	formatWide = "wide"
	// formatName is the names of objects, as kubectl prints and takes them.
	formatName = "name"
)

// formatsAnnotation is where the flag tells the formats, for completion.
const formatsAnnotation = "formats"

// output is how to print what a verb has found out.
type output struct {
	format string
	// formats are those that the verb has.
	formats []string
}

// addFlags adds the flag. Every verb has json and yaml, some have more.
func (o *output) addFlags(flags *pflag.FlagSet, more ...string) {
	o.formats = append([]string{"json", "yaml"}, more...)
	flags.StringVarP(&o.format, "output", "o", "", "print in another form: "+enumerate(o.formats, "or"))
	_ = flags.SetAnnotation("output", formatsAnnotation, o.formats) // the flag is there
}

// check refuses a format that there is not, before anything is asked.
func (o *output) check() error {
	if o.format == "" || slices.Contains(o.formats, o.format) {
		return nil
	}
	return fmt.Errorf("there is no output format %q: choose %s", o.format, enumerate(o.formats, "or"))
}

// enumerate says all of these in a row.
func enumerate(words []string, conjunction string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// print prints a value: json and yaml as it is, all other forms by text.
func (o *output) print(out io.Writer, value any, text func() string) error {
	var raw []byte
	var err error
	switch o.format {
	case "json":
		if raw, err = json.MarshalIndent(value, "", "  "); err == nil {
			raw = append(raw, '\n')
		}
	case "yaml":
		raw, err = yaml.Marshal(value)
	default:
		raw = []byte(visible(text()))
	}
	if err == nil {
		_, err = out.Write(raw)
	}
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// visible is a text of which nothing steers the terminal that it is printed on.
func visible(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = gate.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// isTerminal tells whether somebody looks at what is printed.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
