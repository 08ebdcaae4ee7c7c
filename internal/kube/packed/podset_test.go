// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/internal/gate"
)

// Anyone who may create pods can create many with the name of one node. Reading them, and
// each event of one of them, must cost a few times as much as their list, not its square.
func TestManyPodsOfOneNode(t *testing.T) {
	const count = 10_000
	p := NewPacker(NewDictionaries())
	s := NewPodSet(p)
	var pods []gate.Pod
	for i := range count {
		id := uuid.NewSHA1(uuid.Nil, fmt.Append(nil, i)).String()
		pods = append(pods, gate.Pod{Name: fmt.Sprintf("ns/p-%04d", i), UID: types.UID(id), Owner: "owner", Incarnation: gate.Incarnation(i)})
	}
	packed := make([]Pod, count)
	for i := range pods {
		packed[(i*7919)%count] = p.Pod(&pods[i]) // not in the order of their names
	}
	bounded := func(what string, times uint64, do func()) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		size := uint64(len(s.byNode["n"]))
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > times*size {
			t.Errorf("%s: %d KiB were allocated for a list of %d KiB", what, allocated>>10, size>>10)
		}
	}
	bounded("read", 16, func() {
		for _, pod := range packed {
			s.Add("n", pod)
		}
		s.Sort()
	})
	if got := s.On("n"); !slices.Equal(got, pods) {
		t.Fatalf("%d pods, or not in the order of their names", len(got))
	}
	middle := count / 2
	pods[middle].Ready = true
	bounded("changed", 4, func() {
		if _, changed := s.Put("n", p.Pod(&pods[middle])); !changed {
			t.Error("the pod has not changed")
		}
	})
	if got := s.On("n"); !slices.Equal(got, pods) {
		t.Error("not only one pod has changed")
	}
	bounded("deleted", 6, func() {
		if from := s.Drop("n", pods[middle].Name); from != "n" {
			t.Errorf("dropped from %q", from)
		}
	})
	pods = slices.Delete(pods, middle, middle+1)
	p.Renew()
	bounded("packed anew", 40, func() {
		s.Put("n", p.Pod(&gate.Pod{Name: "ns/z"}))
	})
	if got := s.On("n"); !slices.Equal(got[:len(pods)], pods) || len(got) != count {
		t.Errorf("%d pods after packing anew, or others", len(got))
	}
}

// Pods can be added to a set that contains pods already, and while the dictionary is being
// replaced.
func TestPodsAreAddedInParts(t *testing.T) {
	p := NewPacker(NewDictionaries())
	s := NewPodSet(p)
	pod := func(name string) Pod { return p.Pod(&gate.Pod{Name: "ns/agent-" + name, Owner: "owner"}) }
	for i, part := range [][]string{{"e", "b", "d"}, {"a", "c"}, {"f"}} {
		for _, name := range part {
			s.Add("n", pod(name))
			p.Renew()
			p.Pod(&gate.Pod{Name: fmt.Sprint("other/thing-", i), Owner: "nobody"}) // so that numbers have another meaning
		}
		s.Sort()
	}
	var names []string
	for _, pod := range s.On("n") {
		names = append(names, pod.Name)
	}
	if want := []string{"ns/agent-a", "ns/agent-b", "ns/agent-c", "ns/agent-d", "ns/agent-e", "ns/agent-f"}; !slices.Equal(names, want) {
		t.Errorf("pods %v, want %v", names, want)
	}
	for i := range 6 {
		s.Drop("n", fmt.Sprintf("ns/agent-%c", 'f'-i))
	}
	if len(s.byNode)+len(s.hashCounts) != 0 {
		t.Errorf("%d nodes and %d names remain", len(s.byNode), len(s.hashCounts))
	}
}
