// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/gates"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// wantGates checks which gates are known, and whether the list is complete.
func (f *testFeed) wantGates(t *testing.T, when string, complete bool, names ...string) {
	t.Helper()
	f.handler.take()
	gates, got := f.Gates()
	var known []string
	for _, g := range gates {
		known = append(known, g.Name)
	}
	if got != complete || !slices.Equal(known, names) {
		t.Errorf("%s: gates %v, complete %v (%v); want %v, %v", when, known, got, f.GatesError(), names, complete)
	}
}

// deleteDefinition simulates the deletion of the definition: it is marked as being
// deleted, and its objects are deleted one by one.
func (f *testFeed) deleteDefinition() {
	f.api.set(func() { f.api.definition.DeletionTimestamp = new(metav1.Now()) })
	for _, name := range []string{"g", "h"} {
		f.api.gates().remove(name)
	}
}

func (f *testFeed) definitionGone() {
	f.api.set(func() { f.api.definitionErr = errNotFound })
	f.api.gates().set(errNotFound)
	f.api.gates().hangUp()
}

func (f *testFeed) defineAgain() {
	f.api.set(func() {
		f.api.definitionErr = nil
		f.api.definition = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "again", CreationTimestamp: metav1.Now()}}
	})
	f.api.gates().set(nil)
	f.api.gates().restart()
}

func twoGates(api *fakeAPI) {
	api.gates().Put(kubetest.Gate("g"))
	api.gates().Put(kubetest.Gate("h"))
}

func TestGates(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(*fakeAPI)
		do      func(*testing.T, *testFeed)
	}{
		{"a gate is deleted", twoGates, func(t *testing.T, f *testFeed) {
			f.wantGates(t, "before", true, "g", "h")
			f.api.gates().remove("g")
			f.wantGates(t, "after", true, "h")
		}},
		{"a deletion is missed", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().set(errForbidden)
			f.api.gates().hangUp()
			f.api.gates().remove("g")
			f.api.gates().restart()
			f.api.gates().set(nil)
			kubetest.Pass(time.Minute)
			f.wantGates(t, "after", true, "h")
		}},
		{"a gate is deleted and created again", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().remove("g")
			f.api.gates().Put(kubetest.Gate("g"))
			f.wantGates(t, "after", true, "g", "h")
		}},
		{"the definition is deleted and restored", twoGates, func(t *testing.T, f *testFeed) {
			f.deleteDefinition()
			f.wantGates(t, "while it is being deleted", false, "g", "h")
			f.definitionGone()
			kubetest.Pass(time.Hour)
			f.wantGates(t, "an hour later", false, "g", "h")
			if err := f.GatesError(); err == nil {
				t.Error("no error explains why the gates are incomplete")
			}
			f.defineAgain()
			kubetest.Pass(time.Minute)
			f.wantGates(t, "the definition is restored", false, "g", "h")
			f.api.gates().Put(kubetest.Gate("g"))
			kubetest.Pass(30 * time.Second)
			f.wantGates(t, "one gate is restored", false, "g", "h")
			kubetest.Pass(2 * time.Minute)
			f.wantGates(t, "the other is not restored", true, "g")
		}},
		{"the definition is deleted and restored while the gates cannot be read", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().set(errForbidden)
			f.api.gates().hangUp()
			kubetest.Pass(time.Second)
			f.deleteDefinition()
			f.defineAgain()
			kubetest.Pass(time.Minute)
			f.wantGates(t, "the definition is restored", false, "g", "h")
			kubetest.Pass(2 * time.Minute)
			f.wantGates(t, "no gate is restored", true)
		}},
		{"the deletion of gates with the former definition is delivered late", twoGates, func(t *testing.T, f *testFeed) {
			f.api.set(func() {
				f.api.definition = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "again", CreationTimestamp: metav1.Now()}}
			})
			f.api.gates().remove("g")
			f.wantGates(t, "first", false, "g", "h")
			f.api.gates().remove("h")
			f.wantGates(t, "second", false, "g", "h")
			if got := f.DeletedGates(); len(got) != 0 {
				t.Errorf("deleted = %v", got)
			}
		}},
		{"the API server is unavailable while the definition is deleted", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().set(errors.New("away"))
			f.api.gates().hangUp()
			f.deleteDefinition()
			kubetest.Pass(10 * time.Second)
			f.api.gates().set(nil) // the definition still exists: the list is empty
			f.api.gates().restart()
			kubetest.Pass(time.Minute)
			f.wantGates(t, "the API server is available again", false, "g", "h")
		}},
		{"the definition is deleted while gates are being confirmed", twoGates, func(t *testing.T, f *testFeed) {
			f.api.set(func() {
				f.api.onDefinition = func() {
					f.api.set(func() { f.api.onDefinition = nil })
					f.deleteRest()
					<-time.After(time.Second) // until the feed has received the event; the test waits in Pass
				}
			})
			f.api.gates().remove("g")
			kubetest.Pass(2 * time.Second)
			f.wantGates(t, "after", false, "g", "h")
		}},
		{"the permission to read gates is revoked and granted again", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().set(errForbidden)
			f.api.gates().hangUp()
			kubetest.Pass(time.Hour)
			f.wantGates(t, "revoked", false, "g", "h")
			f.api.gates().set(nil)
			kubetest.Pass(time.Minute)
			f.wantGates(t, "granted again", true, "g", "h")
		}},
		{"the permission to read the definition is revoked and granted again", twoGates, func(t *testing.T, f *testFeed) {
			f.api.set(func() { f.api.definitionErr = errForbidden })
			f.api.gates().remove("g")
			f.wantGates(t, "revoked", false, "g", "h")
			f.api.set(func() { f.api.definitionErr = nil })
			kubetest.Pass(time.Minute)
			f.wantGates(t, "granted again", true, "h")
		}},
		{"no definition at the start", func(api *fakeAPI) {
			api.gates().err, api.definitionErr = errNotFound, errNotFound
		}, func(t *testing.T, f *testFeed) {
			f.wantGates(t, "start", false)
			if got := f.Unsynced(); !slices.Contains(got, gates.GatesName) {
				t.Errorf("unsynced = %v", got)
			}
			f.defineAgain()
			f.api.gates().Put(kubetest.Gate("g"))
			kubetest.Pass(time.Minute)
			f.wantGates(t, "defined", false, "g")
			kubetest.Pass(2 * time.Minute)
			f.wantGates(t, "definition old enough", true, "g")
		}},
		{"the definition is new at the start, and a gate is deleted", func(api *fakeAPI) {
			api.definition.CreationTimestamp = metav1.Now()
			young := kubetest.Gate("young")
			young.CreationTimestamp = metav1.Now()
			api.gates().Put(young)
		}, func(t *testing.T, f *testFeed) {
			f.wantGates(t, "start", false, "young")
			f.api.gates().remove("young")
			f.wantGates(t, "deleted", false)
			if !f.DeletedGates()["young"] || f.GatesError() != nil {
				t.Errorf("deleted = %v, %v", f.DeletedGates(), f.GatesError())
			}
			kubetest.Pass(3 * time.Minute)
			f.wantGates(t, "definition old enough", true)
			if got := f.DeletedGates(); len(got) != 0 {
				t.Errorf("deleted = %v although the gates are complete", got)
			}
		}},
		{"the API server's clock is ahead", func(api *fakeAPI) {
			twoGates(api)
			api.definition.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
		}, func(t *testing.T, f *testFeed) {
			f.wantGates(t, "start", false, "g", "h")
			kubetest.Pass(3 * time.Minute)
			f.wantGates(t, "definition old enough", true, "g", "h")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runFeed(t, tt.prepare, tt.do)
		})
	}
}

// deleteRest marks the definition as being deleted and deletes the remaining gate.
func (f *testFeed) deleteRest() {
	f.api.set(func() { f.api.definition.DeletionTimestamp = new(metav1.Now()) })
	f.api.gates().remove("h")
}

func TestGateStatusIsNotAnnounced(t *testing.T) {
	runFeed(t, twoGates, func(t *testing.T, f *testFeed) {
		f.handler.take()
		g := kubetest.Gate("g")
		g.Status.ObservedGeneration = 1
		f.api.gates().Put(g)
		if _, n := f.handler.take(); n != 0 {
			t.Errorf("nodegate's own status update was announced %d times", n)
		}
		if gates, _ := f.Gates(); gates[0].Status.ObservedGeneration != 1 {
			t.Error("the status is not the latest")
		}
		g.Generation = 2
		f.api.gates().Put(g)
		if _, n := f.handler.take(); n != 1 {
			t.Errorf("a new spec was announced %d times", n)
		}
	})
}

func TestEmptyGateListIsAnnounced(t *testing.T) {
	runFeed(t, func(*fakeAPI) {}, func(t *testing.T, f *testFeed) {
		if gates, complete := f.Gates(); len(gates) != 0 || !complete {
			t.Errorf("gates = %v, %v", gates, f.GatesError())
		}
		if _, n := f.handler.take(); n == 0 {
			t.Error("it was not announced that there are no gates")
		}
		var none []*v1alpha1.NodeGate
		if got, _ := f.Gates(); !slices.Equal(got, none) {
			t.Errorf("gates = %v", got)
		}
	})
}

// The definition is read only while the list of gates is unconfirmed, and then at fixed
// intervals. Status updates do not cause additional reads.
func TestGateStatusDoesNotRereadTheDefinition(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*fakeAPI)
		// most is the maximum number of reads in a minute in which a gate's status is
		// updated every second.
		most int
	}{
		"confirmed":                       {func(*fakeAPI) {}, 0},
		"the definition is new":           {func(api *fakeAPI) { api.definition.CreationTimestamp = metav1.Now() }, 0},
		"the definition is in the future": {func(api *fakeAPI) { api.definition.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour)) }, 0},
		"reading it is forbidden":         {func(api *fakeAPI) { api.definitionErr = errForbidden }, 7}, // after 1, 2, 4, 8, 15 seconds, and so on
		"it is being deleted":             {func(api *fakeAPI) { api.definition.DeletionTimestamp = new(metav1.Now()) }, 7},
	} {
		t.Run(name, func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) { twoGates(api); c.prepare(api) }, func(t *testing.T, f *testFeed) {
				reads := func() (n int) { f.api.set(func() { n = f.api.definitionReads }); return n }
				first := reads()
				for i := range 60 {
					g := kubetest.Gate("g")
					g.Status.ObservedGeneration = int64(i)
					f.api.gates().Put(g)
					kubetest.Pass(time.Second)
				}
				if later := reads() - first; first == 0 || later > c.most || later == 0 && c.most > 0 {
					t.Errorf("%d reads at first, and %d during status updates; want at most %d", first, later, c.most)
				}
			})
		})
	}
}

// A gate is announced if fields appear that an older definition had hidden: its generation is the same.
func TestUncoveredFieldsAreAnnounced(t *testing.T) {
	runFeed(t, twoGates, func(t *testing.T, f *testFeed) {
		f.handler.take()
		g := kubetest.Gate("g")
		g.Spec.Timing.OpenAfterSeconds = 5
		f.api.gates().Put(g)
		if _, n := f.handler.take(); n != 1 {
			t.Errorf("announced %d times, want once", n)
		}
	})
}

// A gate that becomes unreadable is announced, although it is the same gate.
func TestUnreadableGateIsAnnounced(t *testing.T) {
	runFeed(t, twoGates, func(t *testing.T, f *testFeed) {
		f.handler.take()
		g := kubetest.Gate("g")
		for _, readError := range []string{"json: one", "json: another", ""} {
			g.ReadError = readError
			f.api.gates().Put(g)
			if _, n := f.handler.take(); n != 1 {
				t.Errorf("announced %d times with ReadError %q", n, readError)
			}
			f.wantGates(t, "with "+readError, true, "g", "h")
			if gates, _ := f.Gates(); gates[0].ReadError != readError || gates[1].ReadError != "" {
				t.Errorf("gates: %+v", gates)
			}
		}
	})
}
