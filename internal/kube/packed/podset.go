// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/internal/gate"
)

// PodSet keeps pods by node. It is not safe for concurrent use.
//
// Pods are indexed by node name; every pod event carries it. All nodes are searched only
// if a pod is not found on its node and its name may be in the set: events may be lost,
// and the name may be used again on another node.
type PodSet struct {
	packer *Packer
	// dict is the dictionary with which all pods of the set are packed.
	dict *Dictionary
	// byNode contains the pods of each node.
	byNode map[string]podList
	// hashCounts counts the pods in the set by the hash of their names.
	hashCounts map[uint32]uint32
	seed       maphash.Seed
}

// NewPodSet returns an empty set.
func NewPodSet(packer *Packer) *PodSet {
	return &PodSet{
		packer: packer, dict: packer.dictionaries.Current(), seed: maphash.MakeSeed(),
		byNode: make(map[string]podList), hashCounts: make(map[uint32]uint32),
	}
}

// On returns the pods of a node, sorted by name.
func (s *PodSet) On(node string) []gate.Pod {
	list := s.byNode[node]
	if list == "" {
		return nil
	}
	pods := make([]gate.Pod, 0, list.len())
	for packed := range list.all() {
		pods = append(pods, unpackPod(s.dict, packed))
	}
	return pods
}

// Put adds or replaces a pod on a node. It returns the other node from which the pod was
// removed, if any, and whether the pods of this node have changed. A pod without a node
// is not added.
func (s *PodSet) Put(node string, p Pod) (movedFrom string, changed bool) {
	p = s.adopt(p)
	name := p.Name()
	if old, found := s.find(node, name); found {
		if s.same(old, p) {
			return "", false
		}
		s.rebuild(node, name, p.list)
		return "", true
	}
	movedFrom = s.removeAnywhere(name)
	if node == "" {
		return movedFrom, false
	}
	s.rebuild(node, name, p.list)
	s.hashCounts[s.hash(name)]++
	return movedFrom, true
}

// Drop removes a pod, given its node and name. It returns the node on which the pod was
// found, or "".
func (s *PodSet) Drop(node, name string) (from string) {
	if s.remove(node, name) {
		return node
	}
	return s.removeAnywhere(name)
}

// Add adds a pod without checking whether it is in the set. Sort must be called after the
// last Add.
func (s *PodSet) Add(node string, p Pod) {
	p = s.adopt(p)
	s.byNode[node] += p.list
	s.hashCounts[s.hash(p.Name())]++
}

// Sort completes a series of calls of Add.
func (s *PodSet) Sort() {
	for node, list := range s.byNode {
		if list.len() < 2 {
			continue
		}
		pods := slices.Collect(list.all())
		slices.SortFunc(pods, func(a, b string) int { return cmp.Compare(podName(s.dict, a), podName(s.dict, b)) })
		s.byNode[node] = join(pods)
	}
}

// same reports whether two pods have equal facts, even if they were packed differently.
func (s *PodSet) same(old string, p Pod) bool {
	return listOf(old) == p.list || unpackPod(s.dict, old) == p.Unpack()
}

// adopt returns the pod packed with the set's dictionary, after bringing that up to date.
func (s *PodSet) adopt(p Pod) Pod {
	if newest := s.packer.dictionaries.Current(); s.dict != newest {
		s.renew(newest)
	}
	if p.dict == s.dict {
		return p
	}
	return s.packer.podIn(s.dict, new(p.Unpack()))
}

// renew packs all pods again, with another dictionary.
func (s *PodSet) renew(dict *Dictionary) {
	for node, list := range s.byNode {
		var renewed podList
		for packed := range list.all() {
			renewed += s.packer.podIn(dict, new(unpackPod(s.dict, packed))).list
		}
		s.byNode[node] = renewed
	}
	s.dict = dict
}

func (s *PodSet) hash(name string) uint32 { return uint32(maphash.String(s.seed, name)) } //nolint:gosec // any bits do

// find returns the packed pod with a name on a node.
func (s *PodSet) find(node, name string) (string, bool) {
	for packed := range s.byNode[node].all() {
		if podName(s.dict, packed) == name {
			return packed, true
		}
	}
	return "", false
}

// rebuild replaces the pod with a name on a node by a list of one pod or none.
func (s *PodSet) rebuild(node, name string, replacement podList) {
	var before, after podList
	for packed := range s.byNode[node].all() {
		switch order := cmp.Compare(podName(s.dict, packed), name); {
		case order < 0:
			before += listOf(packed)
		case order > 0:
			after += listOf(packed)
		}
	}
	if list := before + replacement + after; list != "" {
		s.byNode[node] = list
	} else {
		delete(s.byNode, node)
	}
}

// remove removes a pod from a node. It returns false if it is not found.
func (s *PodSet) remove(node, name string) bool {
	if _, found := s.find(node, name); !found {
		return false
	}
	s.rebuild(node, name, "")
	hash := s.hash(name)
	if s.hashCounts[hash]--; s.hashCounts[hash] == 0 {
		delete(s.hashCounts, hash)
	}
	return true
}

// removeAnywhere removes a pod from any node, and returns that node.
func (s *PodSet) removeAnywhere(name string) string {
	if s.hashCounts[s.hash(name)] == 0 {
		return ""
	}
	for node := range s.byNode {
		if s.remove(node, name) {
			return node
		}
	}
	return ""
}

// podList is a list of packed pods, sorted by name. Each is preceded by its length.
type podList string

// all iterates over the packed pods.
func (l podList) all() iter.Seq[string] {
	return func(yield func(string) bool) {
		r := reader{rest: string(l)}
		for r.rest != "" {
			if !yield(r.take(int(r.uint()))) { //nolint:gosec // a length
				return
			}
		}
	}
}

func (l podList) len() (n int) {
	for range l.all() {
		n++
	}
	return n
}

func listOf(packed string) podList {
	return podList(string(binary.AppendUvarint(nil, uint64(len(packed)))) + packed)
}

func join(pods []string) podList {
	var all strings.Builder
	for _, packed := range pods {
		all.WriteString(string(listOf(packed)))
	}
	return podList(all.String())
}
