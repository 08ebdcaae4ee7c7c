// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A document is a tree of yaml.Nodes, whatever it was written in: they know
// their lines.

// readYAML reads the documents of a YAML or JSON text that are not empty. An
// error is told, and nil returned.
func (c *converter) readYAML(data []byte) []*yaml.Node {
	if !utf8.Valid(data) {
		c.lose(0, "this is not UTF-8 text")
		return nil
	}
	var documents []*yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			c.lose(lineOf(err), "reading YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
			return nil
		}
		if root := document.Content[0]; root.ShortTag() != "!!null" {
			documents = append(documents, root)
		}
	}
	if len(documents) == 0 {
		c.lose(0, "there is nothing in it")
	}
	return documents
}

// readJSON reads JSON, whose indents may be tabs, as YAML. Within strings there
// are none.
func (c *converter) readJSON(data []byte) []*yaml.Node {
	return c.readYAML(bytes.ReplaceAll(data, []byte("\t"), []byte(" ")))
}

// read reads YAML or JSON, whichever it looks like.
func (c *converter) read(data []byte) []*yaml.Node {
	if begin := bytes.TrimSpace(data); len(begin) > 0 && (begin[0] == '{' || begin[0] == '[') {
		return c.readJSON(data)
	}
	return c.readYAML(data)
}

// single returns the one document that a configuration consists of.
func (c *converter) single(documents []*yaml.Node) *yaml.Node {
	if len(documents) > 1 {
		c.lose(documents[1].Line, "%s reads one document only; remove this one", c.tool)
	}
	if len(documents) != 1 {
		return nil
	}
	return documents[0]
}

var linePattern = regexp.MustCompile(`\bline (\d+)\b`)

// lineOf finds the line in an error of the YAML library, which has no other way
// to tell it.
func lineOf(err error) int {
	found := linePattern.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	line, _ := strconv.Atoi(found[1])
	return line
}

// resolve follows an alias.
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

// fields are the values of a mapping by their keys.
type fields map[string]field

// has tells whether a key is there and has a value.
func (f fields) has(key string) bool {
	v, ok := f[key]
	return ok && v.ShortTag() != "!!null"
}

// mapping reads a mapping. Where keys are named, others are refused: the other
// tool ignores them, but whoever wrote them did not mean to be ignored.
func (c *converter) mapping(n *yaml.Node, what string, known ...string) (fields, bool) {
	line := n.Line
	if n = resolve(n); n.Kind != yaml.MappingNode {
		c.lose(line, "%s is not a mapping of keys to values", what)
		return nil, false
	}
	out := make(fields, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		switch _, twice := out[key.Value]; {
		case twice:
			c.lose(key.Line, "%s has %q twice", what, key.Value)
		case known != nil && !slices.Contains(known, key.Value):
			c.lose(key.Line, "%s has no %q, and %s ignores it: correct or remove it (known: %s)",
				what, key.Value, c.tool, strings.Join(known, ", "))
		default:
			out[key.Value] = field{value, key.Line}
		}
	}
	return out, true
}

// items reads a list.
func (c *converter) items(f field, what string) []*yaml.Node {
	if f.Kind != yaml.SequenceNode {
		c.lose(f.line, "%s is not a list", what)
		return nil
	}
	return f.Content
}

// text reads a string that may not be empty; line is where it is missed. It is
// false when there is none, which has been told then.
func (c *converter) text(f fields, key, what string, line int) (string, bool) {
	v := f[key]
	if !f.has(key) {
		c.lose(line, "%s has no %q, and %s needs it", what, key, c.tool)
		return "", false
	}
	s, ok := c.str(v, key)
	if ok && s == "" {
		c.lose(v.line, "%s is empty, and %s needs it", key, c.tool)
		return "", false
	}
	return s, ok
}

// str reads a string that may be empty.
func (c *converter) str(v field, key string) (string, bool) {
	switch {
	case v.Kind != yaml.ScalarNode:
		c.lose(v.line, "%s is not a text", key)
		return "", false
	case v.ShortTag() != "!!str":
		c.lose(v.line, "%s is %s without quotes, which is not a text: write %q", key, v.Value, v.Value)
		return "", false
	}
	return v.Value, true
}

// boolean reads a boolean.
func (c *converter) boolean(v field, key string) bool {
	value, err := strconv.ParseBool(v.Value)
	if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!bool" || err != nil {
		c.lose(v.line, "%s is neither true nor false", key)
	}
	return value
}
