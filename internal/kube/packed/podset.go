// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"cmp"
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
	// added contains pods that were added to nodes with long lists, until they are sorted. They are
	// joined once: anyone who may create pods can create many for one node.
	added map[string][]podList
	// hashCounts counts the pods in the set by the hash of their names.
	hashCounts map[uint32]uint32
	seed       maphash.Seed
}

// longList is the length of the list of a node, in bytes, from which on pods are not appended to
// it one by one. Usual nodes have no list of their own in PodSet.added, which would cost memory.
const longList = 4096

// NewPodSet returns an empty set.
func NewPodSet(packer *Packer) *PodSet {
	return &PodSet{
		packer: packer, dict: packer.dictionaries.Current(), seed: maphash.MakeSeed(),
		byNode: make(map[string]podList), added: make(map[string][]podList), hashCounts: make(map[uint32]uint32),
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
	begin, end := s.find(node, name)
	if begin < end {
		if s.same(s.byNode[node][begin:end], p) {
			return "", false
		}
		s.splice(node, begin, end, p.list)
		return "", true
	}
	movedFrom = s.removeAnywhere(name)
	if node == "" {
		return movedFrom, false
	}
	s.splice(node, begin, end, p.list)
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
	if list := s.byNode[node]; len(list) < longList {
		s.byNode[node] = list + p.list
	} else {
		s.added[node] = append(s.added[node], p.list)
	}
	s.hashCounts[s.hash(p.Name())]++
}

// Sort completes a series of calls of Add.
func (s *PodSet) Sort() {
	for node, list := range s.byNode {
		if added := s.added[node]; len(added) > 0 || list.len() > 1 {
			s.byNode[node] = s.sorted(append(added, list))
		}
	}
	s.added = make(map[string][]podList) // a map keeps the memory of deleted keys
}

// sorted returns the pods of all lists, sorted by name.
func (s *PodSet) sorted(lists []podList) podList {
	type named struct{ name, list string }
	pods, size := make([]named, 0, len(lists)), 0
	for _, list := range lists {
		size += len(list)
		for r := (reader{rest: string(list)}); r.rest != ""; {
			rest := r.rest
			name := podName(s.dict, r.packed())
			pods = append(pods, named{name, rest[:len(rest)-len(r.rest)]})
		}
	}
	slices.SortFunc(pods, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	var all strings.Builder
	all.Grow(size)
	for _, p := range pods {
		all.WriteString(p.list)
	}
	return podList(all.String())
}

// same reports whether two pods have equal facts, even if they were packed differently.
func (s *PodSet) same(old podList, p Pod) bool {
	return old == p.list || Pod{s.dict, old}.Unpack() == p.Unpack()
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
		s.byNode[node] = s.renewed(list, dict)
	}
	for _, added := range s.added {
		for i, list := range added {
			added[i] = s.renewed(list, dict)
		}
	}
	s.dict = dict
}

// renewed returns a list with all pods packed again, with another dictionary.
func (s *PodSet) renewed(list podList, dict *Dictionary) podList {
	var all strings.Builder
	for packed := range list.all() {
		all.WriteString(string(s.packer.podIn(dict, new(unpackPod(s.dict, packed))).list))
	}
	return podList(all.String())
}

func (s *PodSet) hash(name string) uint32 { return uint32(maphash.String(s.seed, name)) } //nolint:gosec // any bits do

// find returns where the pod with a name is in the list of a node. If it is not there, begin
// and end are equal: that is where it belongs.
func (s *PodSet) find(node, name string) (begin, end int) {
	list := s.byNode[node]
	r := reader{rest: string(list)}
	for r.rest != "" {
		order := cmp.Compare(podName(s.dict, r.packed()), name)
		if order > 0 {
			break
		}
		end = len(list) - len(r.rest)
		if order < 0 {
			begin = end
		}
	}
	return begin, end
}

// splice replaces a part of the list of a node by a list of one pod or none.
func (s *PodSet) splice(node string, begin, end int, replacement podList) {
	before := s.byNode[node]
	list := before[:begin] + replacement + before[end:]
	switch {
	case list == "":
		delete(s.byNode, node)
		return
	case replacement == "": // it may be a part of the string before, which would be retained
		list = podList(strings.Clone(string(list)))
	}
	s.byNode[node] = list
}

// remove removes a pod from a node. It returns false if it is not found.
func (s *PodSet) remove(node, name string) bool {
	begin, end := s.find(node, name)
	if begin == end {
		return false
	}
	s.splice(node, begin, end, "")
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
			if !yield(r.packed()) {
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

// packed reads the next pod of a podList.
func (r *reader) packed() string { return r.take(int(r.uint())) } //nolint:gosec // a length
