// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/internal/printer"
)

// Output formats that some verbs support in addition to json and yaml.
const (
	// formatWide is human-readable text with more details.
	formatWide = "wide"
	// formatName prints object names in the form that kubectl prints and accepts.
	formatName = "name"
)

// formatsAnnotation is the flag annotation that lists the formats for completion.
const formatsAnnotation = "formats"

// output is the output format of a verb.
type output struct {
	format string
	// formats lists the formats that the verb supports.
	formats []string
}

// addFlags adds the flag --output. Every verb supports json and yaml.
func (o *output) addFlags(flags *pflag.FlagSet, more ...string) {
	o.formats = append([]string{"json", "yaml"}, more...)
	flags.StringVarP(&o.format, "output", "o", "", "output format: "+printer.Enumerate(o.formats, "or"))
	_ = flags.SetAnnotation("output", formatsAnnotation, o.formats) // fails only if the flag does not exist
}

// check rejects an unknown format before any request is sent.
func (o *output) check() error {
	if o.format == "" || slices.Contains(o.formats, o.format) {
		return nil
	}
	return fmt.Errorf("unknown output format %q: use %s", o.format, printer.Enumerate(o.formats, "or"))
}

// print writes the value as JSON or YAML, or the text in all other formats.
// Characters that are not printable are escaped in every format.
func (o *output) print(out io.Writer, value any, text func() string) error {
	var raw []byte
	var err error
	switch o.format {
	case "json":
		raw, err = printer.JSON(value)
	case "yaml":
		raw, err = printer.YAML(value)
	default:
		raw = []byte(printer.Text(text()))
	}
	if err == nil {
		_, err = out.Write(raw)
	}
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
