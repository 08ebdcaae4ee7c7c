// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/packed"
)

// The time at which a node became Ready is known, if that was observed, whatever the node's clock.
func TestReadySince(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	s := newWatched(Options{Clock: clock})
	uid, boot, version := "uid", "x", 0
	transition := clock.Now().Add(-time.Hour) // by a slow clock
	object := func(ready corev1.ConditionStatus) *corev1.Node {
		version++
		n := kubetest.Node("n", "uid")
		n.UID, n.ResourceVersion, n.Status.NodeInfo.BootID = types.UID(uid), fmt.Sprint(version), boot
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(transition)}}
		return n
	}
	pack := func(ready corev1.ConditionStatus) *packed.Node { return s.Pack(object(ready)) }
	put := func(ready corev1.ConditionStatus) {
		n := pack(ready)
		s.Put(n)
	}
	list := func(ready corev1.ConditionStatus) {
		n := pack(ready)
		s.ReplaceAt([]*packed.Node{n}, fmt.Sprint(version))
	}
	listOfNone := func(corev1.ConditionStatus) {
		version++
		s.ReplaceAt(nil, fmt.Sprint(version))
	}
	response := func(ready corev1.ConditionStatus) { s.Observe(object(ready)) }
	drop := func(ready corev1.ConditionStatus) {
		n := pack(ready)
		s.Drop(n)
	}
	again := func(then func(corev1.ConditionStatus)) func(corev1.ConditionStatus) {
		return func(ready corev1.ConditionStatus) { transition = transition.Add(time.Second); then(ready) }
	}
	reboot := func(ready corev1.ConditionStatus) { boot += "x"; put(ready) }
	recreated := func(ready corev1.ConditionStatus) { uid += "x"; put(ready) }
	const is, isNot, silent = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	const never = -1
	for _, step := range []struct {
		what   string
		change func(corev1.ConditionStatus)
		ready  corev1.ConditionStatus
		want   int // minutes ago
	}{
		{"Ready when first listed", list, is, never},
		{"still", put, is, never},
		{"NotReady", put, isNot, never},
		{"becomes Ready", put, is, 0},
		{"is still Ready", put, is, 1},
		{"is still Ready in a list", list, is, 2},
		{"was not Ready in between", again(put), is, 0},
		{"was not Ready before a list", again(list), is, 0},
		{"unreachable", put, silent, 1},
		{"Ready in a response", response, is, 0},
		{"the watch catches up", put, is, 1},
		{"NotReady in a list", list, isNot, 2},
		{"Ready in a list", list, is, 0},
		{"reboots, and is Ready", reboot, is, 1}, // Boot.Seen is the later time
		{"another Node of this name", recreated, is, 0},
		{"deleted", drop, is, never},
		{"re-created, and Ready at once", put, is, 0},
		{"missing in a list", listOfNone, is, never},
		{"re-created, and Ready in a list", list, is, 0},
	} {
		clock.SetTime(clock.Now().Add(time.Minute))
		step.change(step.ready)
		facts, _ := s.Get("n")
		var want time.Time
		if step.want != never {
			want = clock.Now().Add(-time.Duration(step.want) * time.Minute)
		}
		if !facts.ReadySince.Equal(want) {
			t.Errorf("%s: since %s, want %s", step.what, facts.ReadySince, want)
		}
	}
}

// Nodes that have been Ready for long take no memory.
func TestReadySinceIsForgotten(t *testing.T) {
	r := newReadySince()
	begin := time.Unix(1_800_000_000, 0)
	for i := range 1000 {
		r.set(fmt.Sprint(i), begin.Add(time.Duration(i)*time.Minute))
	}
	if most := int(2 * readySinceKept / time.Minute); len(r.byName) > most {
		t.Errorf("%d entries, want at most %d", len(r.byName), most)
	}
	if len(r.byName) < int(readySinceKept/time.Minute) {
		t.Errorf("only %d entries", len(r.byName))
	}
}
