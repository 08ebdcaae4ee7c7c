// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Documents of all formats are trees of yaml.Nodes, because these contain line numbers.

// readYAML returns the non-empty documents of a YAML or JSON text. If the text is invalid,
// it adds an error and returns nil.
func (c *converter) readYAML(data []byte) []*yaml.Node { return c.readAll([][]byte{data}) }

// readAll returns the non-empty documents of texts with the line numbers of one file.
func (c *converter) readAll(texts [][]byte) []*yaml.Node {
	var documents []*yaml.Node
	for _, text := range texts {
		if !utf8.Valid(text) {
			c.errorf(0, "this is not UTF-8 text")
			return nil
		}
		for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var document yaml.Node
			err := decoder.Decode(&document)
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				c.errorf(lineOf(err), "reading YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
				return nil
			}
			if root := document.Content[0]; root.ShortTag() != "!!null" {
				documents = append(documents, root)
			}
		}
	}
	if len(documents) == 0 {
		c.errorf(0, "the input is empty")
	}
	return documents
}

// readJSON reads JSON as YAML. It replaces tabs, which JSON allows for indentation. Strings
// in JSON contain no tabs.
func (c *converter) readJSON(data []byte) []*yaml.Node {
	return c.readAll(jsonValues(bytes.ReplaceAll(data, []byte("\t"), []byte(" "))))
}

// jsonValues splits a text into its JSON values, which need no separator. Each is preceded by as many
// empty lines as there are lines before it. A text that is not JSON, but may be YAML, is not split.
func jsonValues(data []byte) (values [][]byte) {
	for decoder := json.NewDecoder(bytes.NewReader(data)); ; {
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return values
		case err != nil:
			return [][]byte{data}
		}
		before := data[:int(decoder.InputOffset())-len(value)]
		values = append(values, append(bytes.Repeat([]byte("\n"), bytes.Count(before, []byte("\n"))), value...))
	}
}

// read reads YAML or JSON, depending on the first character.
func (c *converter) read(data []byte) []*yaml.Node {
	if begin := bytes.TrimSpace(data); len(begin) > 0 && (begin[0] == '{' || begin[0] == '[') {
		return c.readJSON(data)
	}
	return c.readYAML(data)
}

// single returns the only document of a configuration.
func (c *converter) single(documents []*yaml.Node) *yaml.Node {
	if len(documents) > 1 {
		c.errorf(documents[1].Line, "%s reads one document only: remove this one", c.tool)
	}
	if len(documents) != 1 {
		return nil
	}
	return documents[0]
}

var linePattern = regexp.MustCompile(`\bline (\d+)\b`)

// lineOf returns the line number in an error of the YAML library, which has it in the
// message only.
func lineOf(err error) int {
	found := linePattern.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	line, _ := strconv.Atoi(found[1])
	return line
}

// resolve returns the target of an alias, or the node itself.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// field is a value with the line of its key.
type field struct {
	*yaml.Node
	line int
}

// fields contains the values of a mapping by key.
type fields map[string]field

// has reports whether a key exists and has a value.
func (f fields) has(key string) bool {
	v, ok := f[key]
	return ok && v.ShortTag() != "!!null"
}

// labels returns a mapping of labels to texts.
func (c *converter) labels(v field, what string) map[string]string {
	all, _ := c.mapping(v.Node, what)
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) { // errors in a stable order
		if value, ok := c.str(all[key], key); ok {
			out[key] = value
		}
	}
	return out
}

// mapping returns the fields of a mapping. If keys are named, other keys are errors: the
// other tool ignores them, which the author did not intend.
func (c *converter) mapping(n *yaml.Node, what string, known ...string) (fields, bool) {
	line := n.Line
	if n = resolve(n); n.Kind != yaml.MappingNode {
		c.errorf(line, "%s is not a mapping of keys to values", what)
		return nil, false
	}
	out := make(fields, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		switch _, twice := out[key.Value]; {
		case twice && key.Value == "apiVersion":
			c.errorf(key.Line, "%s has %q twice: if another object begins here, write a line with --- before it", what, key.Value)
			return nil, false
		case twice:
			c.errorf(key.Line, "%s has %q twice", what, key.Value)
		case known != nil && !slices.Contains(known, key.Value):
			c.errorf(key.Line, "%s has the unknown key %q, which %s ignores: correct or remove it (known: %s)",
				what, key.Value, c.tool, strings.Join(known, ", "))
		default:
			out[key.Value] = field{value, key.Line}
		}
	}
	return out, true
}

// items returns the elements of a list.
func (c *converter) items(f field, what string) []*yaml.Node {
	if f.Kind != yaml.SequenceNode {
		c.errorf(f.line, "%s is not a list", what)
		return nil
	}
	return f.Content
}

// required reports whether a key has a value, and adds an error with the line if not.
func (c *converter) required(f fields, key, what string, line int) bool {
	if !f.has(key) {
		c.errorf(line, "%s has no %q, which %s requires", what, key, c.tool)
	}
	return f.has(key)
}

// text returns a string that must not be empty. line is the line of the error if the key is
// missing. The second result is false if an error was added.
func (c *converter) text(f fields, key, what string, line int) (string, bool) {
	if !c.required(f, key, what, line) {
		return "", false
	}
	v := f[key]
	s, ok := c.str(v, key)
	if ok && s == "" {
		c.errorf(v.line, "%s is empty, but %s requires a value", key, c.tool)
		return "", false
	}
	return s, ok
}

// str returns a string that may be empty.
func (c *converter) str(v field, key string) (string, bool) {
	switch {
	case v.Kind != yaml.ScalarNode:
		c.errorf(v.line, "%s is not a string", key)
		return "", false
	case v.ShortTag() != "!!str":
		c.errorf(v.line, "%s is %s without quotes, which is not a string: write %q", key, v.Value, v.Value)
		return "", false
	}
	return v.Value, true
}

// boolean returns a boolean.
func (c *converter) boolean(v field, key string) bool {
	value, err := strconv.ParseBool(v.Value)
	if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!bool" || err != nil {
		c.errorf(v.line, "%s is neither true nor false", key)
	}
	return value
}
