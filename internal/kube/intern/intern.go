// SPDX-License-Identifier: Apache-2.0

// Package intern saves memory where many objects contain the same texts.
package intern

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Texts lets equal texts share memory. When it has grown large, it drops all entries
// rather than keep labels of deleted nodes; texts that are in use stay valid. (Package
// unique would drop entries more selectively, but only keeps texts whose handles are
// referenced, and labels.Set cannot hold handles.)
type Texts struct {
	mu    sync.Mutex
	texts map[string]string
	bytes int // in the texts
}

// maxEntries is the maximum number of entries, and maxBytes that of bytes in them.
const (
	maxEntries = 1 << 16
	maxBytes   = 16 << 20
)

// New returns empty Texts.
func New() *Texts { return &Texts{texts: make(map[string]string)} }

// Text returns s, in memory that equal texts share.
func (in *Texts) Text(s string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.locked(s)
}

// UID is like Text.
func (in *Texts) UID(uid types.UID) types.UID { return types.UID(in.Text(string(uid))) }

func (in *Texts) locked(s string) string {
	if known, ok := in.texts[s]; ok {
		return known
	}
	if in.bytes += len(s); len(in.texts) >= maxEntries || in.bytes > maxBytes {
		clear(in.texts)
		in.bytes = len(s)
	}
	in.texts[s] = s
	return s
}

// Labels interns a node's labels. A value that equals the node's name, such as its
// hostname, is not interned because no other node has it.
func (in *Texts) Labels(set map[string]string, name string) labels.Set {
	if len(set) == 0 {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	out := make(labels.Set, len(set))
	for key, value := range set {
		if value == name {
			out[in.locked(key)] = name
			continue
		}
		out[in.locked(key)] = in.locked(value)
	}
	return out
}

// Taints interns the texts of taints.
func (in *Texts) Taints(taints []corev1.Taint) []corev1.Taint {
	if len(taints) == 0 {
		return nil
	}
	out := make([]corev1.Taint, len(taints))
	for i, t := range taints {
		t.Key, t.Value, t.Effect = in.Text(t.Key), in.Text(t.Value), corev1.TaintEffect(in.Text(string(t.Effect)))
		out[i] = t
	}
	return out
}
