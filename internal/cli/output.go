// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// output is how to print what a verb has found out.
type output struct{ format string }

func (o *output) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.format, "output", "o", "", "print for programs instead of for people: json or yaml")
}

// check refuses a format that there is not, before anything is asked.
func (o *output) check() error {
	switch o.format {
	case "", "json", "yaml":
		return nil
	}
	return fmt.Errorf("there is no output format %q: choose json or yaml", o.format)
}

// print prints a value, for people by text.
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
		raw = []byte(text())
	}
	if err == nil {
		_, err = out.Write(raw)
	}
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// isTerminal tells whether somebody looks at what is printed.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
