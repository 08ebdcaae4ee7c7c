// SPDX-License-Identifier: Apache-2.0

// Command pictures draws the output of a command as a terminal window, in SVG. It reads
// the output from the golden file in its argument, and writes the picture to standard
// output.
package main

import (
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// Sizes in pixels of a line and of a character of the monospaced font.
const (
	lineHeight = 20
	charWidth  = 7.85
	margin     = 18
	titleBar   = 34
)

// noBreakSpace replaces spaces, because some SVG renderers collapse consecutive spaces.
const noBreakSpace = "\u00a0"

var command = flag.String("command", "", "the command line that printed it")

func main() {
	flag.Parse()
	if err := run(os.Stdout, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the output: %w", err)
	}
	lines := append([]string{"$ " + *command}, strings.Split(strings.TrimRight(string(text), "\n"), "\n")...)
	return draw(w, lines)
}

func draw(w io.Writer, lines []string) error {
	columns := 0
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(line))
	}
	width, height := int(charWidth*float64(columns))+2*margin, titleBar+len(lines)*lineHeight+margin
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">`+"\n", width, height)
	svg.WriteString(`<rect width="100%" height="100%" rx="8" fill="#1e2430"/>` + "\n")
	for i, color := range []string{"#ff5f56", "#ffbd2e", "#27c93f"} {
		fmt.Fprintf(&svg, `<circle cx="%d" cy="17" r="6" fill="%s"/>`+"\n", margin+6+i*20, color)
	}
	fmt.Fprintf(&svg, `<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13">`+"\n")
	for i, line := range lines {
		fmt.Fprintf(&svg, `<text x="%d" y="%d" fill="%s">`, margin, titleBar+(i+1)*lineHeight-5, color(line))
		if err := xml.EscapeText(&svg, []byte(strings.ReplaceAll(line, " ", noBreakSpace))); err != nil {
			return fmt.Errorf("drawing %q: %w", line, err)
		}
		svg.WriteString("</text>\n")
	}
	svg.WriteString("</g>\n</svg>\n")
	_, err := io.WriteString(w, svg.String())
	return err
}

// color returns the color of a line. The marks of signals have the same colors as in
// the command's output.
func color(line string) string {
	switch {
	case strings.HasPrefix(line, "$ "):
		return "#8fb8ff"
	case strings.HasPrefix(line, "  ✗"):
		return "#ff8a80"
	case strings.HasPrefix(line, "  ✓"):
		return "#9ccc65"
	case strings.HasPrefix(line, "  ?"):
		return "#ffd54f"
	}
	return "#e6e9ef"
}
