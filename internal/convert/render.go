// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// width is the maximum line length.
const width = 100

// WriteYAML writes the gates as YAML documents, with the notes as comments.
func (r *Result) WriteYAML(w io.Writer) error {
	var b bytes.Buffer
	comment(&b, fmt.Sprintf("Converted by 'nodegate convert' from %s (%s).", r.name, r.tool))
	comment(&b, "Taints that nodegate must be allowed to use (--allowed-taint-keys): "+strings.Join(r.taints(), ","))
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
		render(&b, &g.NodeGate)
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

func render(b *bytes.Buffer, g *v1alpha1.NodeGate) {
	fmt.Fprintf(b, "apiVersion: %s\nkind: NodeGate\nmetadata: {name: %s}\nspec:\n", v1alpha1.GroupVersion, scalar(g.Name))
	t := spec(&g.Spec)
	t.write(b, 2)
}

// tree is a value to be written as YAML: a scalar, a mapping (which has keys) or a list.
type tree struct {
	scalar string
	keys   []string
	kids   []tree
	list   bool
}

// spec converts a spec to a tree, in the order of the API's fields.
func spec(s *v1alpha1.NodeGateSpec) tree {
	all := structure(reflect.ValueOf(s).Elem())
	if !slices.Contains(all.keys, "nodeSelector") { // {} selects all nodes and must be written
		all.keys = slices.Insert(all.keys, 0, "nodeSelector")
		all.kids = slices.Insert(all.kids, 0, tree{})
	}
	return all
}

// structure converts a struct to a tree without zero fields.
func structure(v reflect.Value) tree {
	names := fieldNames(v.Type())
	t := tree{keys: make([]string, 0, len(names)), kids: make([]tree, 0, len(names))}
	for i, name := range names {
		field := v.Field(i)
		switch {
		case field.IsZero():
		case name == "": // inline
			inner := structure(field)
			t.keys, t.kids = append(t.keys, inner.keys...), append(t.kids, inner.kids...)
		default:
			t.keys, t.kids = append(t.keys, name), append(t.kids, value(field))
		}
	}
	return t
}

var fieldNameCache sync.Map

// fieldNames returns the JSON names of a struct's fields. "" means inline. The names are
// cached, because determining them takes longer than writing the fields.
func fieldNames(t reflect.Type) []string {
	if names, ok := fieldNameCache.Load(t); ok {
		return names.([]string)
	}
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	fieldNameCache.Store(t, names)
	return names
}

func value(v reflect.Value) tree {
	switch v.Kind() {
	case reflect.Pointer:
		return value(v.Elem())
	case reflect.Struct:
		if both, ok := v.Interface().(intstr.IntOrString); ok {
			return tree{scalar: scalar(both.String())}
		}
		return structure(v)
	case reflect.Slice:
		t := tree{list: true}
		for i := range v.Len() {
			t.kids = append(t.kids, value(v.Index(i)))
		}
		return t
	case reflect.Map:
		var t tree
		for _, key := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int {
			return strings.Compare(a.String(), b.String())
		}) {
			t.keys, t.kids = append(t.keys, scalar(key.String())), append(t.kids, value(v.MapIndex(key)))
		}
		return t
	case reflect.String:
		return tree{scalar: scalar(v.String())}
	}
	return tree{scalar: fmt.Sprint(v.Interface())}
}

// write writes a mapping or a list as a block.
func (t *tree) write(b *bytes.Buffer, indent int) {
	for i := range t.kids {
		kid := &t.kids[i]
		b.WriteString(strings.Repeat(" ", indent))
		start := indent
		if t.list {
			b.WriteString("- ")
		} else {
			b.WriteString(t.keys[i] + ":")
			start += len(t.keys[i]) + 2
		}
		if flow := kid.flow(); start+len(flow) <= width && !kid.isSignals() && !t.list {
			b.WriteString(" " + flow + "\n")
			continue
		}
		switch {
		case t.list: // the mapping starts after the dash
			var inner bytes.Buffer
			kid.write(&inner, indent+2)
			b.WriteString(strings.TrimLeft(inner.String(), " "))
		case kid.list:
			b.WriteByte('\n')
			kid.write(b, indent)
		default:
			b.WriteByte('\n')
			kid.write(b, indent+2)
		}
	}
}

// isSignals reports whether the tree is a list of signals, which are written one per line.
func (t *tree) isSignals() bool {
	return t.list && len(t.kids) > 0 && slices.Contains(t.kids[0].keys, "name")
}

// flow returns the value in flow style.
func (t *tree) flow() string {
	if t.kids == nil {
		if t.scalar == "" {
			return "{}"
		}
		return t.scalar
	}
	parts := make([]string, len(t.kids))
	for i := range t.kids {
		parts[i] = t.kids[i].flow()
		if !t.list {
			parts[i] = t.keys[i] + ": " + parts[i]
		}
	}
	if t.list {
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

var (
	plain = regexp.MustCompile(`^(?:[A-Za-z_/][A-Za-z0-9_./*-]*|\.\*[A-Za-z0-9_./*-]*|[0-9]+%)$`)
	// words are strings that some YAML parsers read as other types.
	words = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
)

// scalar returns a scalar that all YAML parsers read as the given string.
func scalar(text string) string {
	switch {
	case plain.MatchString(text) && !slices.Contains(words, strings.ToLower(text)):
		return text
	case strings.ContainsFunc(text, func(r rune) bool {
		return r != ' ' && !unicode.IsGraphic(r) || r == unicode.ReplacementChar || r > unicode.MaxLatin1
	}):
		return strconv.QuoteToASCII(text)
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
