// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"go.yaml.in/yaml/v3"
)

// readTOML reads a TOML text. If the text is invalid, it adds an error and returns nil.
func (c *converter) readTOML(data []byte) *yaml.Node {
	var content any // this validates the text as a whole
	if err := toml.Unmarshal(data, &content); err != nil {
		line := 0
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, _ = at.Position()
		}
		c.errorf(line, "reading TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
		return nil
	}
	t := newTOMLTree(data)
	var parser unstable.Parser
	parser.Reset(data)
	for parser.NextExpression() {
		t.add(parser.Expression())
	}
	if err := parser.Error(); err != nil {
		c.errorf(0, "reading TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
		return nil
	}
	return t.root
}

// tomlTree builds the tree of a valid TOML text.
type tomlTree struct {
	// newlines are the offsets of line ends.
	newlines []int
	root     *yaml.Node
	// table is the current table.
	table *yaml.Node
}

func newTOMLTree(data []byte) *tomlTree {
	t := &tomlTree{root: newNode(yaml.MappingNode, 1)}
	for i, b := range data {
		if b == '\n' {
			t.newlines = append(t.newlines, i)
		}
	}
	t.table = t.root
	return t
}

func newNode(kind yaml.Kind, line int) *yaml.Node { return &yaml.Node{Kind: kind, Line: line} }

// line returns the line of an offset. The library's function is slow, because it counts
// from the beginning each time.
func (t *tomlTree) line(r unstable.Range) int {
	n, _ := slices.BinarySearch(t.newlines, int(r.Offset))
	return n + 1
}

// add adds a table, an element of an array of tables, or a key with a value.
func (t *tomlTree) add(e *unstable.Node) {
	switch e.Kind {
	case unstable.Table:
		t.table = t.descend(t.root, keysOf(e))
	case unstable.ArrayTable:
		keys := keysOf(e)
		last := keys[len(keys)-1]
		array := t.child(t.descend(t.root, keys[:len(keys)-1]), last, yaml.SequenceNode)
		t.table = newNode(yaml.MappingNode, t.line(last.Raw))
		array.Content = append(array.Content, t.table)
	case unstable.KeyValue:
		t.put(t.table, e)
	}
}

func keysOf(e *unstable.Node) []*unstable.Node {
	var keys []*unstable.Node
	for i := e.Key(); i.Next(); {
		keys = append(keys, i.Node())
	}
	return keys
}

// descend returns a nested table. It creates missing tables.
func (t *tomlTree) descend(table *yaml.Node, keys []*unstable.Node) *yaml.Node {
	for _, key := range keys {
		table = t.child(table, key, yaml.MappingNode)
		if table.Kind == yaml.SequenceNode { // in an array of tables, keys refer to the last element
			table = table.Content[len(table.Content)-1]
		}
	}
	return table
}

// child returns the value of a key in a table. It creates the value if it is missing.
func (t *tomlTree) child(table *yaml.Node, key *unstable.Node, kind yaml.Kind) *yaml.Node {
	for i := 0; i+1 < len(table.Content); i += 2 {
		if table.Content[i].Value == string(key.Data) {
			return table.Content[i+1]
		}
	}
	line := t.line(key.Raw)
	return t.set(table, key, newNode(kind, line))
}

func (t *tomlTree) set(table *yaml.Node, key *unstable.Node, value *yaml.Node) *yaml.Node {
	name := newNode(yaml.ScalarNode, t.line(key.Raw))
	name.Tag, name.Value = "!!str", string(key.Data)
	table.Content = append(table.Content, name, value)
	return value
}

func (t *tomlTree) put(table *yaml.Node, e *unstable.Node) {
	keys := keysOf(e)
	last := keys[len(keys)-1]
	t.set(t.descend(table, keys[:len(keys)-1]), last, t.value(e.Value(), t.line(last.Raw)))
}

// tags maps kinds of TOML values to YAML tags. All other kinds are times.
var tags = map[unstable.Kind]string{
	unstable.String: "!!str", unstable.Bool: "!!bool", unstable.Integer: "!!int", unstable.Float: "!!float",
}

func (t *tomlTree) value(v *unstable.Node, line int) *yaml.Node {
	if v.Raw.Length > 0 {
		line = t.line(v.Raw)
	}
	switch v.Kind {
	case unstable.Array:
		array := newNode(yaml.SequenceNode, line)
		for i := v.Children(); i.Next(); {
			array.Content = append(array.Content, t.value(i.Node(), line))
		}
		return array
	case unstable.InlineTable:
		table := newNode(yaml.MappingNode, line)
		for i := v.Children(); i.Next(); {
			t.put(table, i.Node())
		}
		if len(table.Content) > 0 {
			table.Line = table.Content[0].Line
		}
		return table
	}
	scalar := newNode(yaml.ScalarNode, line)
	scalar.Tag, scalar.Value = "!!timestamp", string(v.Data)
	if tag, ok := tags[v.Kind]; ok {
		scalar.Tag = tag
	}
	return scalar
}
