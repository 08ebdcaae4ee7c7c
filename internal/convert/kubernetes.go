// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// objects returns the Kubernetes objects of the documents, including the items of lists. If
// a document is not an object, it adds an error and returns nil.
func (c *converter) objects(documents []*yaml.Node) []fields {
	var out []fields
	for _, document := range documents {
		object, ok := c.mapping(document, "the document")
		if !ok {
			return nil
		}
		if object.has("items") {
			for _, item := range c.items(object["items"], "items") {
				if inner, ok := c.mapping(item, "the item"); ok {
					out = append(out, inner)
				}
			}
			continue
		}
		out = append(out, object)
	}
	return out
}

// at returns the scalar of a key, or "".
func (f fields) at(key string) string {
	if v, ok := f[key]; ok && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// line returns the line of the first key, or 0.
func (f fields) line() (first int) {
	for _, v := range f {
		if first == 0 || v.line < first {
			first = v.line
		}
	}
	return first
}

// within returns the fields of a nested mapping, or nil if a key is missing.
func (f fields) within(keys ...string) fields {
	for _, key := range keys {
		v, ok := f[key]
		if !ok {
			return nil
		}
		f = fieldsOf(v.Node)
	}
	return f
}

// fieldsOf returns the fields of a mapping, or nil if the node is not a mapping.
func fieldsOf(n *yaml.Node) fields {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	f := make(fields, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		f[n.Content[i].Value] = field{resolve(n.Content[i+1]), n.Content[i].Line}
	}
	return f
}

// dataFile is a file in a ConfigMap.
type dataFile struct {
	name    string
	content string
	// offset is the difference between line numbers of the input and of the content.
	offset int
	// exact is true if line numbers of the content correspond to lines of the input.
	exact bool
}

// dataFiles returns the files of a ConfigMap in their order.
func (c *converter) dataFiles(object fields, line int) []dataFile {
	if !object.has("data") {
		c.errorf(line, "the ConfigMap has no data")
		return nil
	}
	n := object["data"]
	if n.Kind != yaml.MappingNode {
		c.errorf(n.line, "data is not a mapping of keys to values")
		return nil
	}
	var out []dataFile
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		text, ok := c.str(field{value, key.Line}, key.Value)
		if !ok {
			continue
		}
		f := dataFile{name: key.Value, content: text, offset: value.Line - 1}
		if value.Style&yaml.LiteralStyle != 0 {
			f.offset, f.exact = value.Line, true
		}
		out = append(out, f)
	}
	return out
}

// readDataFile reads a file in a ConfigMap. Line numbers are those of the input.
func (c *converter) readDataFile(f dataFile) []*yaml.Node {
	move := func(line int) int {
		if !f.exact {
			line = 1
		}
		return line + f.offset
	}
	inner := newConverter(c.tool, c.source)
	documents := inner.read([]byte(f.content))
	for _, finding := range inner.findings {
		c.addFinding(move(finding.Line), finding.Severity, fmt.Sprintf("in %s: %s", f.name, finding.Message))
	}
	for _, document := range documents {
		eachNode(document, func(n *yaml.Node) { n.Line = move(n.Line) })
	}
	return documents
}

func eachNode(n *yaml.Node, do func(*yaml.Node)) {
	do(n)
	for _, kid := range n.Content {
		eachNode(kid, do)
	}
}

// selectorOf converts requirements to the selector of a gate.
func selectorOf(requirements []labels.Requirement) (v1alpha1.LabelSelector, error) {
	var out v1alpha1.LabelSelector
	require := func(key string, operator metav1.LabelSelectorOperator, values []string) {
		out.MatchExpressions = append(out.MatchExpressions,
			v1alpha1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values})
	}
	for _, r := range requirements {
		values := r.Values().List()
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if _, taken := out.MatchLabels[r.Key()]; len(values) == 1 && !taken {
				if out.MatchLabels == nil {
					out.MatchLabels = map[string]string{}
				}
				out.MatchLabels[r.Key()] = values[0]
				continue
			}
			require(r.Key(), metav1.LabelSelectorOpIn, values)
		case selection.NotEquals, selection.NotIn:
			require(r.Key(), metav1.LabelSelectorOpNotIn, values)
		case selection.Exists:
			require(r.Key(), metav1.LabelSelectorOpExists, nil)
		case selection.DoesNotExist:
			require(r.Key(), metav1.LabelSelectorOpDoesNotExist, nil)
		default:
			return out, fmt.Errorf("a gate's selector cannot compare numbers (%s)", r.String())
		}
	}
	return out, nil
}
