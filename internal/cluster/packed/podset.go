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
// A pod is found by its node, which whatever tells of it tells too. Only a pod that is
// not where it is said to be is looked for everywhere, and only if its name may be known:
// for events may get lost, and a name return on another node.
type PodSet struct {
	packer *Packer
	// dict is the dictionary of all that is packed here.
	dict *Dictionary
	// byNode has the pods of each node.
	byNode map[string]podList
	// census counts the pods that are known, by the hash of their names.
	census map[uint32]uint32
	seed   maphash.Seed
}

// NewPodSet returns an empty set.
func NewPodSet(packer *Packer) *PodSet {
	return &PodSet{
		packer: packer, dict: packer.books.Dictionary(), seed: maphash.MakeSeed(),
		byNode: make(map[string]podList), census: make(map[uint32]uint32),
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

// Put takes in a pod on a node. It tells whether that is news, and from which other node
// the pod has vanished by it, if any. A pod without a node is nowhere.
func (s *PodSet) Put(node string, p Pod) (left string, changed bool) {
	p = s.adopt(p)
	name := p.Name()
	if old, there := s.find(node, name); there {
		if s.same(old, p) {
			return "", false
		}
		s.rebuild(node, name, p.list)
		return "", true
	}
	left = s.takeAnywhere(name)
	if node == "" {
		return left, false
	}
	s.rebuild(node, name, p.list)
	s.census[s.hash(name)]++
	return left, true
}

// Drop forgets the pod of a name, which is said to be on a node. It returns the node that
// it was on, if it was known.
func (s *PodSet) Drop(node, name string) (left string) {
	if s.take(node, name) {
		return node
	}
	return s.takeAnywhere(name)
}

// Add takes in a pod that is not in the set, without looking, until Sort is called.
func (s *PodSet) Add(node string, p Pod) {
	p = s.adopt(p)
	s.byNode[node] += p.list
	s.census[s.hash(p.Name())]++
}

// Sort ends a series of Add.
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

// same tells whether two pods are, also if they were packed differently.
func (s *PodSet) same(old string, p Pod) bool {
	return listOf(old) == p.list || unpackPod(s.dict, old) == p.Unpack()
}

// adopt returns a pod in the set's own dictionary, which is the newest.
func (s *PodSet) adopt(p Pod) Pod {
	if newest := s.packer.books.Dictionary(); s.dict != newest {
		s.renew(newest)
	}
	if p.dict == s.dict {
		return p
	}
	return s.packer.podIn(s.dict, new(p.Unpack()))
}

// renew packs everything anew.
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

// find returns the packed pod of a name on a node.
func (s *PodSet) find(node, name string) (string, bool) {
	for packed := range s.byNode[node].all() {
		if podName(s.dict, packed) == name {
			return packed, true
		}
	}
	return "", false
}

// rebuild puts a list of one pod, or of none, in place of the pod of a name on a node.
func (s *PodSet) rebuild(node, name string, instead podList) {
	var before, after podList
	for packed := range s.byNode[node].all() {
		switch order := cmp.Compare(podName(s.dict, packed), name); {
		case order < 0:
			before += listOf(packed)
		case order > 0:
			after += listOf(packed)
		}
	}
	if list := before + instead + after; list != "" {
		s.byNode[node] = list
	} else {
		delete(s.byNode, node)
	}
}

// take takes a pod off a node. It is false if it is not there.
func (s *PodSet) take(node, name string) bool {
	if _, there := s.find(node, name); !there {
		return false
	}
	s.rebuild(node, name, "")
	hash := s.hash(name)
	if s.census[hash]--; s.census[hash] == 0 {
		delete(s.census, hash)
	}
	return true
}

// takeAnywhere takes a pod off the node that it is on, which it returns.
func (s *PodSet) takeAnywhere(name string) string {
	if s.census[s.hash(name)] == 0 {
		return ""
	}
	for node := range s.byNode {
		if s.take(node, name) {
			return node
		}
	}
	return ""
}

// podList is packed pods, sorted by name, each after its length.
type podList string

// all returns the packed pods.
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
