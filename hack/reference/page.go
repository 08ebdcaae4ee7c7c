// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

// A page is a reference that is being written.
type page struct {
	out      io.Writer
	enums    map[string][]choice
	examples map[string]string
	unused   map[string]bool // examples that no field has used yet
	errs     []error
}

// signalPath stands for openWhen[], closeWhen[] and anyOf[].
const signalPath = "signal"

// statusPath is the prefix of paths in the status.
const statusPath = "status"

const preface = `<!-- Written by 'make generate' from the types and docs/reference/examples.yaml. -->

# NodeGate

%s, cluster-scoped, short name ` + "`ng`" + `; names are DNS labels of at most 63 characters. Field selectors can use
` + "`spec.mode` and `spec.taint.key`" + `, for example ` + "`kubectl get nodegates --field-selector spec.mode=Paused`" + `. The examples
are parts of a ` + "`spec`" + ` or ` + "`status`" + ` that the API server accepts. For a field without an example, see the example of
its parent field.

`

func (p *page) write(version string, spec, status schema) {
	fmt.Fprintf(p.out, preface, "`"+version+"`")
	p.heading("spec", "The desired state of the gate.")
	p.rules(spec)
	p.fields("", spec)
	signal := *spec.Properties["openWhen"].Items.Schema
	p.heading("Signals", "The elements of `openWhen`, `closeWhen` and `anyOf`. Each has a name and exactly one kind. "+
		"A signal holds, does not hold yet, or is unknown. An unknown signal never opens and never closes a gate.")
	p.rules(signal)
	p.fields(signalPath+".", signal)
	p.heading(statusPath, "The most recently observed state of the gate. Only nodegate writes it. Its size does not depend on the number "+
		"of nodes. Its counts and times have no defaults, and no bounds other than those of their types.")
	p.example(statusPath)
	p.fields(statusPath+".", status)
}

func (p *page) heading(title, text string) { fmt.Fprintf(p.out, "## %s\n\n%s\n\n", title, text) }

// fields writes an object's fields in the order of their names, the required
// ones first.
func (p *page) fields(prefix string, s schema) {
	for _, required := range []bool{true, false} {
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, name) == required {
				p.field(prefix+name, name, s.Properties[name], required)
			}
		}
	}
}

func (p *page) field(path, name string, s schema, required bool) {
	// In Markdown, a placeholder such as <node> is HTML, which is not displayed.
	description := strings.ReplaceAll(text(s.Description), "<", `\<`)
	fmt.Fprintf(p.out, "### `%s`\n\n%s.\n\n%s\n\n", path, strings.Join(traits(name, s, required), ", "), description)
	p.choices(s)
	p.rules(s)
	p.example(path)
	switch {
	case path == "openWhen", path == "closeWhen", path == signalPath+".anyOf": // see Signals
	case s.Type == "object" && len(s.Properties) > 0:
		p.fields(path+".", s)
	case s.Type == "array" && len(s.Items.Schema.Properties) > 0:
		p.fields(path+"[].", *s.Items.Schema)
	}
}

// text returns the comment in a description with one line per paragraph.
func text(description string) string {
	paragraphs := strings.Split(comment(description), "\n\n")
	for i, paragraph := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(paragraph), " ")
	}
	return strings.Join(paragraphs, "\n\n")
}

// traits returns a short summary of a field's schema.
func traits(name string, s schema, required bool) []string {
	out := []string{kind(s)}
	if strings.HasSuffix(name, "Seconds") {
		out = append(out, "in seconds")
	}
	if required {
		out[0] = "Required " + out[0]
	} else {
		out[0] = strings.ToUpper(out[0][:1]) + out[0][1:]
	}
	if s.Default != nil && string(s.Default.Raw) != "{}" {
		out = append(out, "default `"+unquoted(s.Default.Raw)+"`")
	}
	if s.Minimum != nil && s.Maximum != nil {
		out = append(out, fmt.Sprintf("%v to %.0f", *s.Minimum, *s.Maximum))
	}
	if s.MinItems != nil && s.MaxItems != nil {
		out = append(out, fmt.Sprintf("%d to %d elements", *s.MinItems, *s.MaxItems))
	} else if s.MaxItems != nil {
		out = append(out, fmt.Sprintf("at most %d elements", *s.MaxItems))
	}
	if s.MaxProperties != nil {
		out = append(out, fmt.Sprintf("at most %d elements", *s.MaxProperties))
	}
	if s.MaxLength != nil && len(s.Enum) == 0 {
		out = append(out, fmt.Sprintf("at most %d characters", *s.MaxLength))
	}
	if most := elementLength(s); most != nil {
		out = append(out, fmt.Sprintf("each at most %d characters", *most))
	}
	return out
}

// elementLength returns the maximum length of the strings of a list or map, if it
// is limited.
func elementLength(s schema) *int64 {
	switch {
	case s.Items != nil && len(s.Items.Schema.Enum) == 0:
		return s.Items.Schema.MaxLength
	case s.AdditionalProperties != nil:
		return s.AdditionalProperties.Schema.MaxLength
	}
	return nil
}

func kind(s schema) string {
	switch {
	case s.Format == "date-time":
		return "time"
	case s.AdditionalProperties != nil:
		return "map of " + kind(*s.AdditionalProperties.Schema) + "s"
	case s.XIntOrString:
		return "number or string"
	case s.Type == "array":
		return "list of " + kind(*s.Items.Schema) + "s"
	}
	return s.Type
}

func unquoted(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// choices lists the values of an enumeration.
func (p *page) choices(s schema) {
	enum := s.Enum
	if s.Type == "array" {
		enum = s.Items.Schema.Enum
	}
	if len(enum) == 0 {
		return
	}
	values := make([]choice, 0, len(enum))
	for _, raw := range enum {
		values = append(values, choice{value: unquoted(raw.Raw)})
	}
	if documented, ok := p.enums[enumKey(values)]; ok {
		values = documented
	}
	for _, c := range values {
		line := "- `" + c.value + "`"
		if c.meaning != "" {
			line += ": " + c.meaning
		}
		fmt.Fprintln(p.out, line)
	}
	fmt.Fprintln(p.out)
}

// rules lists the validation rules.
func (p *page) rules(s schema) {
	if len(s.XValidations) == 0 {
		return
	}
	fmt.Fprint(p.out, "Rejected with:\n\n")
	for _, rule := range s.XValidations {
		fmt.Fprintf(p.out, "- %s\n", rule.Message)
	}
	fmt.Fprintln(p.out)
}

// example writes the field's example. A field without an example must occur in
// the example of its parent.
func (p *page) example(path string) {
	if example, ok := p.examples[path]; ok {
		delete(p.unused, path)
		fmt.Fprintf(p.out, "```yaml\n%s```\n\n", example)
		return
	}
	name := path[strings.LastIndex(path, ".")+1:]
	for parent := path; ; {
		i := strings.LastIndex(parent, ".")
		if i < 0 {
			p.errs = append(p.errs, fmt.Errorf("%s: there is no example", path))
			return
		}
		parent = parent[:i]
		if example, ok := p.examples[strings.TrimSuffix(parent, "[]")]; ok && strings.Contains(example, name+":") {
			return
		}
	}
}
