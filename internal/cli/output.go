// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
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
	// formatHTML is a self-contained page for a browser.
	formatHTML = "html"
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

// print writes a complete answer. If the command was interrupted, it writes nothing: what could not be
// read because of that must not look as if it did not exist or could not be read otherwise. A verb that
// has changed something prints it anyway, with a context that is never canceled.
func (o *output) print(ctx context.Context, out io.Writer, value any, text func() string) error {
	raw, err := o.encode(value, text)
	switch {
	case err != nil:
		return fmt.Errorf("formatting the output: %w", err)
	case ctx.Err() != nil:
		return describeRequestError(ctx.Err())
	}
	if slices.Contains([]string{formatHTML, "json", "yaml"}, o.format) {
		out = unwatched(out) // for programs, which know the cluster
	}
	if _, err := out.Write(raw); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}

// encode returns the value as HTML, JSON or YAML, or the text in all other formats. Characters that are
// not printable are escaped in every format.
func (o *output) encode(value any, text func() string) ([]byte, error) {
	switch o.format {
	case formatHTML:
		var b bytes.Buffer
		err := value.(interface{ WriteHTML(io.Writer) error }).WriteHTML(&b)
		return b.Bytes(), err
	case "json":
		return printer.JSON(value)
	case "yaml":
		return printer.YAML(value)
	}
	return []byte(printer.Text(text())), nil
}
