// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// width is the maximum line length.
const width = 100

// WriteYAML writes the gates as YAML documents, with the notes as comments.
func (r *Result) WriteYAML(w io.Writer) error {
	var b bytes.Buffer
	comment(&b, fmt.Sprintf("Converted by 'nodegate convert' from %s (%s).", r.name, r.tool))
	comment(&b, "Taints that --allowed-taint-keys must contain, in addition to those of all other gates: "+strings.Join(r.taints(), ","))
	if stamps := r.stamps(); len(stamps) > 0 {
		comment(&b, "Annotations that --allowed-stamp-annotations must contain: "+strings.Join(stamps, ","))
	}
	for _, note := range r.notes {
		comment(&b, "- "+note)
	}
	for i := range r.Gates {
		g := &r.Gates[i]
		b.WriteString("---\n")
		if g.Line > 0 {
			comment(&b, fmt.Sprintf("%s:%d", r.name, g.Line))
		}
		for _, note := range g.notes {
			comment(&b, "- "+note)
		}
		if err := render(&b, &g.NodeGate); err != nil {
			return fmt.Errorf("writing gate %s: %w", g.NodeGate.Name, err)
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing gates: %w", err)
	}
	return nil
}

// taints returns the taints of all gates in the form of --allowed-taint-keys.
func (r *Result) taints() []string {
	var taints []string
	for i := range r.Gates {
		t := r.Gates[i].NodeGate.Spec.Taint
		if t.Effect == corev1.TaintEffectNoSchedule {
			taints = append(taints, t.Key)
		} else {
			taints = append(taints, t.Key+":"+string(t.Effect))
		}
	}
	slices.Sort(taints)
	return slices.Compact(taints)
}

// stamps returns the annotations of all gates in the form of --allowed-stamp-annotations.
func (r *Result) stamps() (keys []string) {
	for i := range r.Gates {
		if key := r.Gates[i].NodeGate.Spec.OpenedAtAnnotation; key != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// comment writes a text as comment lines. The text cannot end the comment.
func comment(b *bytes.Buffer, text string) {
	indent := ""
	if strings.HasPrefix(text, "- ") {
		indent = "  "
	}
	line := "#"
	for _, word := range strings.FieldsFunc(text, unicode.IsSpace) {
		word = strings.Map(printable, word)
		if len(line)+1+len(word) > width && len(line) > len("# "+indent) {
			b.WriteString(line + "\n")
			line = "#" + indent
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return unicode.ReplacementChar
	}
	return r
}

// render writes a gate as a YAML document.
func render(b *bytes.Buffer, g *v1alpha1.NodeGate) error {
	text, err := json.Marshal(g.Spec)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	spec := nodeOf(decoder)
	layOut(spec, 2)
	fmt.Fprintf(b, "apiVersion: %s\nkind: NodeGate\n", v1alpha1.GroupVersion)
	encoder := yaml.NewEncoder(b)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	metadata := mapping(scalar("name"), scalar(g.Name))
	metadata.Style = yaml.FlowStyle
	return encoder.Encode(mapping(scalar("metadata"), metadata, scalar("spec"), spec))
}

func mapping(content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Content: content}
}

// nodeOf reads a valid JSON value. It keeps the order of the fields, and drops empty
// objects, except a nodeSelector, which selects all nodes.
func nodeOf(d *json.Decoder) *yaml.Node {
	token, _ := d.Token()
	switch token := token.(type) {
	case json.Delim:
		n := mapping()
		if token == '[' {
			n.Kind = yaml.SequenceNode
		}
		for d.More() {
			n.Content = append(n.Content, nodeOf(d))
			if i := len(n.Content) - 2; n.Kind == yaml.MappingNode && i%2 == 0 && i >= 0 && isEmpty(n.Content[i], n.Content[i+1]) {
				n.Content = n.Content[:i]
			}
		}
		_, _ = d.Token()
		return n
	case string:
		return scalar(token)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}
}

func isEmpty(key, value *yaml.Node) bool {
	return value.Kind == yaml.MappingNode && len(value.Content) == 0 && key.Value != "nodeSelector"
}

// layOut selects the flow style for values that fit on the line of their key. Signals have
// a line each. indent is the indentation of the keys or dashes.
func layOut(n *yaml.Node, indent int) {
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			layOut(item, indent+2)
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		isSignals := strings.HasSuffix(key.Value, "When") || key.Value == "anyOf"
		switch {
		case indent+flowLength(key)+2+flowLength(value) <= width && !isSignals:
			value.Style |= yaml.FlowStyle
		case value.Kind == yaml.SequenceNode:
			layOut(value, indent)
		default:
			layOut(value, indent+2)
		}
	}
}

// flowLength returns the length of a value in flow style.
func flowLength(n *yaml.Node) int {
	if n.Kind == yaml.ScalarNode {
		if n.Style != 0 {
			return utf8.RuneCountInString(n.Value) + 2
		}
		return len(n.Value)
	}
	length := max(2, 2*len(n.Content)) // brackets, and separators of two characters
	for _, kid := range n.Content {
		length += flowLength(kid)
	}
	return length
}

var (
	plain = regexp.MustCompile(`^(?:[A-Za-z_/][A-Za-z0-9_./*-]*|\.\*[A-Za-z0-9_./*-]*|[0-9]+%)$`)
	// words are strings that some YAML parsers read as other types.
	words = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
)

// scalar returns a scalar that all YAML parsers read as the given string.
func scalar(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	switch {
	case plain.MatchString(text) && !slices.Contains(words, strings.ToLower(text)):
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }):
		n.Style = yaml.DoubleQuotedStyle
	default:
		n.Style = yaml.SingleQuotedStyle
	}
	return n
}
