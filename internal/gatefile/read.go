// SPDX-License-Identifier: Apache-2.0

package gatefile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
)

// extensions are the extensions of files that are read. Other files are ignored.
var extensions = []string{".yaml", ".yml", ".json"}

// noGates is a document that declares that there are no gates. This must be explicit, so
// that a missing file does not count as an empty set of gates.
const noGates = "{apiVersion: nodegate.dev/v1alpha1, kind: NodeGateList, items: []}"

// file is the name and the content of a file.
type file struct {
	name    string
	content []byte
}

// snapshot is the content of the directory at one time.
type snapshot struct {
	files []file
	// err is the error of reading the directory.
	err error
}

// readDirectory reads all files of a directory that may declare gates. It ignores hidden
// files, which editors and the kubelet use for their own purposes.
func readDirectory(directory string) snapshot {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return snapshot{err: err}
	}
	var s snapshot
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains(extensions, filepath.Ext(name)) {
			continue
		}
		content, err := readRegular(filepath.Join(directory, name))
		if err != nil {
			return snapshot{err: err}
		}
		s.files = append(s.files, file{name: name, content: content})
	}
	if len(s.files) == 0 {
		s.err = fmt.Errorf("no file has the extension %s; to declare that there are no gates, add a file with %s",
			strings.Join(extensions, " or "), noGates)
	}
	return s
}

// readRegular reads a regular file, or one that a symbolic link refers to. Opening a named pipe would
// block until something writes to it.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file; remove it, or use another extension", path)
	}
	return os.ReadFile(path)
}

// fingerprint returns a hash of the snapshot.
func (s snapshot) fingerprint() [sha256.Size]byte {
	h := sha256.New()
	if s.err != nil {
		fmt.Fprintf(h, "error %q", s.err.Error())
	}
	for _, f := range s.files {
		fmt.Fprintf(h, "%q %d ", f.name, len(f.content))
		h.Write(f.content)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Declared returns the gates that a stream of YAML or JSON documents declares, in their
// order. It sets defaults and validates the gates like the API server. Objects of other
// kinds are ignored, also in a v1 List, and so is null. name is the name of the stream in errors. The error
// contains all problems of the stream.
func Declared(name string, content []byte) ([]*v1alpha1.NodeGate, error) {
	var gates []*v1alpha1.NodeGate
	var errs []error
	f, err := file{name: name, content: content}.decoded()
	if err != nil {
		return nil, err
	}
	for _, d := range f.documents() {
		found, err := d.declarations(true)
		for _, one := range found {
			gates = append(gates, one.gate)
		}
		errs = append(errs, err)
	}
	return gates, errors.Join(errs...)
}

// isOther reports whether an object in JSON has another kind than gates and lists.
func isOther(object []byte) bool {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := utiljson.Unmarshal(object, &kind); err != nil || kind.APIVersion == "" || kind.Kind == "" {
		return false
	}
	group, _, _ := strings.Cut(kind.APIVersion, "/")
	return group != v1alpha1.GroupName && (kind.APIVersion != "v1" || kind.Kind != "List")
}

// declaration is a gate and the place of its declaration.
type declaration struct {
	gate  *v1alpha1.NodeGate
	where string
}

// gates returns the declared gates, sorted by name. If there is an error, it contains all
// problems with file and line, and no gates are returned.
func (s snapshot) gates() ([]*v1alpha1.NodeGate, error) {
	if s.err != nil {
		return nil, s.err
	}
	var all []declaration
	var errs []error
	for _, f := range s.files {
		found, err := f.declarations()
		all, errs = append(all, found...), append(errs, err)
	}
	if err := errors.Join(append(errs, contradictions(all)...)...); err != nil {
		return nil, err
	}
	gates := make([]*v1alpha1.NodeGate, 0, len(all))
	for _, d := range all {
		gates = append(gates, d.gate)
	}
	slices.SortFunc(gates, func(a, b *v1alpha1.NodeGate) int { return cmp.Compare(a.Name, b.Name) })
	return gates, nil
}

// contradictions returns errors for gates with the same name, and for gates whose taints a
// node cannot carry at the same time. In files, unlike in the API server, it is unknown
// which of two gates is older.
func contradictions(all []declaration) (errs []error) {
	type slot struct {
		key    string
		effect corev1.TaintEffect
	}
	type claim struct {
		declaration
		value string
	}
	names, slots := make(map[string]declaration), make(map[slot]claim)
	for _, d := range all {
		if first, taken := names[d.gate.Name]; taken {
			errs = append(errs, fmt.Errorf("%s: gate %s is already declared in %s; remove one of the two", d.where, d.gate.Name, first.where))
			continue
		}
		names[d.gate.Name] = d
		for _, t := range d.gate.Spec.Taints() {
			at := slot{t.Key, t.Effect}
			if first, taken := slots[at]; !taken {
				slots[at] = claim{d, t.Value}
			} else if first.value != t.Value {
				errs = append(errs, fmt.Errorf("%s: gate %s and gate %s (%s) have the taint %s:%s with different values, and a node can carry only one of them; "+
					"use the same value, or another key", d.where, d.gate.Name, first.gate.Name, first.where, t.Key, t.Effect))
			}
		}
	}
	return errs
}

// declarations returns the declarations in the file's documents.
func (f file) declarations() ([]declaration, error) {
	f, err := f.decoded()
	if err != nil {
		return nil, err
	}
	var all []declaration
	var errs []error
	documents := f.documents()
	for _, d := range documents {
		found, err := d.declarations(false)
		all, errs = append(all, found...), append(errs, err)
	}
	if len(documents) == 0 {
		errs = append(errs, fmt.Errorf("%s: the file is empty; remove it, or, to declare that there are no gates, write %s", f.name, noGates))
	}
	return all, errors.Join(errs...)
}

// document is one YAML or JSON document of a file. Its text is preceded by as many empty lines
// as there are lines before it in the file, so that errors have the line numbers of the file.
type document struct {
	text  []byte
	where string
}

// documents splits the file after the JSON objects with which it starts, and at lines that
// start with "---" or "...". It omits documents that are empty or contain only comments.
func (f file) documents() []document {
	all, length := f.objects()
	first, number := 0, bytes.Count(f.content[:length], []byte("\n")) // the first line with content, and the current line
	text := bytes.NewBufferString(strings.Repeat("\n", number))
	end := func() {
		if first > 0 {
			all = append(all, document{text: bytes.Clone(text.Bytes()), where: fmt.Sprintf("%s:%d", f.name, first)})
		}
		text.Reset()
		text.WriteString(strings.Repeat("\n", number))
		first = 0
	}
	for line := range strings.Lines(string(f.content[length:])) {
		if separator.MatchString(line) {
			end()
			line = "   " + strings.TrimLeft(line[3:], " \t") // a document may start on the same line
		}
		number++
		if content := strings.TrimSpace(line); first == 0 && content != "" && !strings.HasPrefix(content, "#") {
			first = number
		}
		text.WriteString(line)
	}
	end()
	return all
}

// separator matches lines that start or end a YAML document.
var separator = regexp.MustCompile(`^(---|\.\.\.)(\s|$)`)

// objects returns the JSON objects with which the file starts, and their length. JSON objects
// need no separator: jq, for example, writes them one after the other.
func (f file) objects() (all []document, length int) {
	if !bytes.HasPrefix(bytes.TrimSpace(f.content), []byte("{")) {
		return nil, 0
	}
	lines := 0
	for decoder := json.NewDecoder(bytes.NewReader(f.content)); ; {
		var object json.RawMessage
		if err := decoder.Decode(&object); err != nil {
			return all, length // the rest is not JSON
		}
		end := int(decoder.InputOffset())
		lines += bytes.Count(f.content[length:end-len(object)], []byte("\n"))
		text := append(bytes.Repeat([]byte("\n"), lines), object...)
		all = append(all, document{text: text, where: fmt.Sprintf("%s:%d", f.name, lines+1)})
		lines += bytes.Count(object, []byte("\n"))
		length = end
	}
}

// json returns the document as JSON. Duplicate keys and text after the document are errors: the
// conversion ignores both, and gates would be missing without notice.
func (d document) json() ([]byte, error) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(d.text))
	var first, next any
	if err := decoder.Decode(&first); err != nil {
		return nil, fmt.Errorf("parsing YAML: %w", err)
	}
	if err := decoder.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, errors.New("other text follows the document that starts here; write --- between documents")
	}
	data, err := yaml.YAMLToJSON(d.text)
	if err != nil {
		return nil, fmt.Errorf("parsing YAML: %w", err)
	}
	return data, nil
}

// declarations returns the declarations in a document: a gate, or a list of gates. Objects of
// other kinds are errors, unless they are ignored.
func (d document) declarations(ignoreOthers bool) ([]declaration, error) {
	data, err := d.json()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.where, err)
	}
	var list struct {
		APIVersion string             `json:"apiVersion"`
		Kind       string             `json:"kind"`
		Items      *[]json.RawMessage `json:"items"`
	}
	err = utiljson.Unmarshal(data, &list)
	mixed := list.APIVersion == "v1" && list.Kind == "List"
	isList := mixed || list.APIVersion == v1alpha1.GroupVersion.String() && list.Kind == crd.Kind+"List"
	switch {
	case ignoreOthers && (string(data) == "null" || isOther(data)): // like kubectl
		return nil, nil
	case err != nil || !isList: // Decode returns the errors of an invalid document
		return d.gate()
	case list.Items == nil:
		return nil, fmt.Errorf("%s: the list has no items; to declare that there are no gates, write items: []", d.where)
	}
	var all []declaration
	var errs []error
	for i, item := range *list.Items {
		if ignoreOthers && mixed && isOther(item) {
			continue
		}
		found, err := document{text: item, where: fmt.Sprintf("%s: items[%d]", d.where, i)}.gate()
		all, errs = append(all, found...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// gate returns the declaration of a document that is a gate.
func (d document) gate() ([]declaration, error) {
	gate, err := crd.Decode(d.text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.where, err)
	}
	return []declaration{{gate, d.where}}, nil
}
