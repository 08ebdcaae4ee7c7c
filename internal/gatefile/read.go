// SPDX-License-Identifier: Apache-2.0

package gatefile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
)

// extensions end the names of files that are read. Others are none of ours.
var extensions = []string{".yaml", ".yml", ".json"}

// noGates is what says that there are no gates: nothing that is there by
// accident says it.
const noGates = "{apiVersion: nodegate.dev/v1alpha1, kind: NodeGateList, items: []}"

// file is one file as it was read.
type file struct {
	name    string
	content []byte
}

// look is what one look at the directory found.
type look struct {
	files []file
	// err is why the directory cannot be read.
	err error
}

// lookAt reads all files of a directory that may declare gates. Hidden files
// are not among them: editors and the kubelet keep their own affairs there.
func lookAt(directory string) look {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return look{err: err}
	}
	var l look
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains(extensions, filepath.Ext(name)) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			return look{err: err}
		}
		l.files = append(l.files, file{name: name, content: content})
	}
	if len(l.files) == 0 {
		l.err = fmt.Errorf("no file in it ends in %s; if there are to be no gates, put in one that says %s",
			strings.Join(extensions, ", "), noGates)
	}
	return l
}

// fingerprint tells one look from another.
func (l look) fingerprint() [sha256.Size]byte {
	h := sha256.New()
	if l.err != nil {
		fmt.Fprintf(h, "error %q", l.err.Error())
	}
	for _, f := range l.files {
		fmt.Fprintf(h, "%q %d ", f.name, len(f.content))
		h.Write(f.content)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Declared returns the gates that a stream of YAML or JSON documents declares, in
// their order, and as the API server would take them: with its defaults, and
// refused by its rules. Documents of other kinds are left out. The name is the
// stream's in errors, which tell all that is wrong with it.
func Declared(name string, content []byte) ([]*v1alpha1.NodeGate, error) {
	var gates []*v1alpha1.NodeGate
	var errs []error
	for _, d := range (file{name: name, content: content}).documents() {
		if d.isOther() {
			continue
		}
		found, err := d.declarations()
		for _, one := range found {
			gates = append(gates, one.gate)
		}
		errs = append(errs, err)
	}
	return gates, errors.Join(errs...)
}

// isOther tells whether the document says of itself that it is of another kind.
func (d document) isOther() bool {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(d.text, &kind); err != nil || kind.APIVersion == "" || kind.Kind == "" {
		return false
	}
	group, _, _ := strings.Cut(kind.APIVersion, "/")
	return group != v1alpha1.GroupName && (kind.APIVersion != "v1" || kind.Kind != "List")
}

// declaration is a gate and where it is declared.
type declaration struct {
	gate  *v1alpha1.NodeGate
	where string
}

// gates returns what the files declare, by name. The error tells all that is
// wrong with them, each with file and line; then nothing is returned.
func (l look) gates() ([]*v1alpha1.NodeGate, error) {
	if l.err != nil {
		return nil, l.err
	}
	var all []declaration
	var errs []error
	for _, f := range l.files {
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

// contradictions finds gates of one name, and gates that no node can carry both
// of. The API server knows which of two is older, files do not.
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
			errs = append(errs, fmt.Errorf("%s: gate %s is declared in %s already; remove one of the two", d.where, d.gate.Name, first.where))
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

// declarations reads the file's documents.
func (f file) declarations() ([]declaration, error) {
	var all []declaration
	var errs []error
	documents := f.documents()
	for _, d := range documents {
		found, err := d.declarations()
		all, errs = append(all, found...), append(errs, err)
	}
	if len(documents) == 0 {
		errs = append(errs, fmt.Errorf("%s: nothing is in it; remove it, or, if there are to be no gates, have it say %s", f.name, noGates))
	}
	return all, errors.Join(errs...)
}

// document is one YAML document of a file. Its text begins with as many empty
// lines as come before it in the file, so that errors tell the file's lines.
type document struct {
	text  []byte
	where string
}

// documents splits the file at lines that begin with "---", and leaves out what
// is empty or comment.
func (f file) documents() []document {
	var all []document
	var text bytes.Buffer
	first, number := 0, 0 // the first line that says something, and the current one
	end := func() {
		if first > 0 {
			all = append(all, document{text: bytes.Clone(text.Bytes()), where: fmt.Sprintf("%s:%d", f.name, first)})
		}
		text.Reset()
		text.WriteString(strings.Repeat("\n", number))
		first = 0
	}
	for line := range strings.Lines(string(f.content)) {
		if rest, dashes := strings.CutPrefix(line, "---"); dashes && (rest == "" || strings.ContainsAny(rest[:1], " \t\r\n")) {
			end()
			line = "   " + rest // a document may begin right here
		}
		number++
		if said := strings.TrimSpace(line); first == 0 && said != "" && !strings.HasPrefix(said, "#") {
			first = number
		}
		text.WriteString(line)
	}
	end()
	return all
}

// declarations reads a document: a gate, or a list of gates.
func (d document) declarations() ([]declaration, error) {
	var list struct {
		APIVersion string             `json:"apiVersion"`
		Kind       string             `json:"kind"`
		Items      *[]json.RawMessage `json:"items"`
	}
	err := yaml.Unmarshal(d.text, &list)
	isList := list.APIVersion == "v1" && list.Kind == "List" ||
		list.APIVersion == v1alpha1.GroupVersion.String() && list.Kind == crd.Kind+"List"
	switch {
	case err != nil || !isList: // what is wrong with a document is told as for any gate
		gate, err := crd.Decode(d.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.where, err)
		}
		return []declaration{{gate, d.where}}, nil
	case list.Items == nil:
		return nil, fmt.Errorf("%s: the list has no items; if there are to be no gates, write items: []", d.where)
	}
	var all []declaration
	var errs []error
	for i, item := range *list.Items {
		where := fmt.Sprintf("%s: items[%d]", d.where, i)
		gate, err := crd.Decode(item)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
			continue
		}
		all = append(all, declaration{gate, where})
	}
	return all, errors.Join(errs...)
}
