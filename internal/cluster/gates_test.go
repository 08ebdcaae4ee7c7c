// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// wantGates checks which gates are known, and whether these are all.
func (f *testFeed) wantGates(t *testing.T, when string, complete bool, names ...string) {
	t.Helper()
	f.told.take()
	gates, got := f.Gates()
	var known []string
	for _, g := range gates {
		known = append(known, g.Name)
	}
	if got != complete || !slices.Equal(known, names) {
		t.Errorf("%s: gates %v, complete %v (%v); want %v, %v", when, known, got, f.GatesError(), names, complete)
	}
}

// deleteDefinition does what happens when the definition is deleted: it is
// marked, its objects are deleted one by one, and nothing of it is there.
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
	f.api.gates().forget()
}

func twoGates(api *fakeAPI) {
	api.gates().put(testGate("g"))
	api.gates().put(testGate("h"))
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
		{"a gate is deleted unseen", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().remove("g")
			f.api.gates().forget()
			pass(time.Minute)
			f.wantGates(t, "after", true, "h")
		}},
		{"a gate is deleted and created again", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().remove("g")
			f.api.gates().put(testGate("g"))
			f.wantGates(t, "after", true, "g", "h")
		}},
		{"the definition is deleted and restored", twoGates, func(t *testing.T, f *testFeed) {
			f.deleteDefinition()
			f.wantGates(t, "while it is being deleted", false, "g", "h")
			f.definitionGone()
			pass(time.Hour)
			f.wantGates(t, "an hour later", false, "g", "h")
			if err := f.GatesError(); err == nil {
				t.Error("nothing says why the gates are not complete")
			}
			f.defineAgain()
			pass(time.Minute)
			f.wantGates(t, "the definition is back", false, "g", "h")
			f.api.gates().put(testGate("g"))
			pass(30 * time.Second)
			f.wantGates(t, "one gate is back", false, "g", "h")
			pass(2 * time.Minute)
			f.wantGates(t, "the other has not come", true, "g")
		}},
		{"the definition is deleted, and nothing of it is seen before it is back", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().set(errForbidden)
			f.api.gates().hangUp()
			pass(time.Second)
			f.deleteDefinition()
			f.defineAgain()
			pass(time.Minute)
			f.wantGates(t, "the definition is back", false, "g", "h")
			pass(2 * time.Minute)
			f.wantGates(t, "no gate has come", true)
		}},
		{"word of a gate that went with the former definition comes late", twoGates, func(t *testing.T, f *testFeed) {
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
		{"the API server is away while the definition is deleted", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().set(errors.New("away"))
			f.api.gates().hangUp()
			f.deleteDefinition()
			pass(10 * time.Second)
			f.api.gates().set(nil) // the definition is not quite gone: the list is empty
			f.api.gates().forget()
			pass(time.Minute)
			f.wantGates(t, "it is back", false, "g", "h")
		}},
		{"the definition goes while gates are confirmed", twoGates, func(t *testing.T, f *testFeed) {
			f.api.set(func() {
				f.api.onDefinition = func() {
					f.api.set(func() { f.api.onDefinition = nil })
					f.deleteRest()
					pass(time.Second) // until the feed has heard of it
				}
			})
			f.api.gates().remove("g")
			pass(2 * time.Second)
			f.wantGates(t, "after", false, "g", "h")
		}},
		{"the right to read gates is taken away and given back", twoGates, func(t *testing.T, f *testFeed) {
			f.api.gates().set(errForbidden)
			f.api.gates().hangUp()
			pass(time.Hour)
			f.wantGates(t, "taken", false, "g", "h")
			f.api.gates().set(nil)
			pass(time.Minute)
			f.wantGates(t, "given back", true, "g", "h")
		}},
		{"the right to read the definition is taken away and given back", twoGates, func(t *testing.T, f *testFeed) {
			f.api.set(func() { f.api.definitionErr = errForbidden })
			f.api.gates().remove("g")
			f.wantGates(t, "taken", false, "g", "h")
			f.api.set(func() { f.api.definitionErr = nil })
			pass(time.Minute)
			f.wantGates(t, "given back", true, "h")
		}},
		{"no definition at the start", func(api *fakeAPI) {
			api.gates().err, api.definitionErr = errNotFound, errNotFound
		}, func(t *testing.T, f *testFeed) {
			f.wantGates(t, "start", false)
			if got := f.Unsynced(); !slices.Contains(got, gatesName) {
				t.Errorf("unsynced = %v", got)
			}
			f.defineAgain()
			f.api.gates().put(testGate("g"))
			pass(time.Minute)
			f.wantGates(t, "defined", false, "g")
			pass(2 * time.Minute)
			f.wantGates(t, "settled", true, "g")
		}},
		{"the definition is young at the start, and a gate is deleted", func(api *fakeAPI) {
			api.definition.CreationTimestamp = metav1.Now()
			young := testGate("young")
			young.CreationTimestamp = metav1.Now()
			api.gates().put(young)
		}, func(t *testing.T, f *testFeed) {
			f.wantGates(t, "start", false, "young")
			f.api.gates().remove("young")
			f.wantGates(t, "deleted", false)
			if !f.DeletedGates()["young"] || f.GatesError() != nil {
				t.Errorf("deleted = %v, %v", f.DeletedGates(), f.GatesError())
			}
			pass(3 * time.Minute)
			f.wantGates(t, "settled", true)
			if got := f.DeletedGates(); len(got) != 0 {
				t.Errorf("deleted = %v although the gates are complete", got)
			}
		}},
		{"the definition's clock is ahead", func(api *fakeAPI) {
			twoGates(api)
			api.definition.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
		}, func(t *testing.T, f *testFeed) {
			f.wantGates(t, "start", false, "g", "h")
			pass(3 * time.Minute)
			f.wantGates(t, "settled", true, "g", "h")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runFeed(t, tt.prepare, tt.do)
		})
	}
}

// deleteRest deletes the definition and what gates are left.
func (f *testFeed) deleteRest() {
	f.api.set(func() { f.api.definition.DeletionTimestamp = new(metav1.Now()) })
	f.api.gates().remove("h")
}

func TestGateStatusIsNoNews(t *testing.T) {
	runFeed(t, twoGates, func(t *testing.T, f *testFeed) {
		f.told.take()
		g := testGate("g")
		g.Status.ObservedGeneration = 1
		f.api.gates().put(g)
		if _, n := f.told.take(); n != 0 {
			t.Errorf("told %d times of our own status", n)
		}
		if gates, _ := f.Gates(); gates[0].Status.ObservedGeneration != 1 {
			t.Error("the status is not the newest")
		}
		g.Generation = 2
		f.api.gates().put(g)
		if _, n := f.told.take(); n != 1 {
			t.Errorf("told %d times of a new spec", n)
		}
	})
}

func TestGatesAreToldOnceWhenComplete(t *testing.T) {
	runFeed(t, func(*fakeAPI) {}, func(t *testing.T, f *testFeed) {
		if gates, complete := f.Gates(); len(gates) != 0 || !complete {
			t.Errorf("gates = %v, %v", gates, f.GatesError())
		}
		if _, n := f.told.take(); n == 0 {
			t.Error("nobody was told that there is no gate")
		}
		var none []*v1alpha1.NodeGate
		if got, _ := f.Gates(); !slices.Equal(got, none) {
			t.Errorf("gates = %v", got)
		}
	})
}

// The definition is read where it is in doubt that all gates are known, and then as
// often as is laid down: not once more for each status that we write meanwhile.
func TestGateStatusHasNobodyReadTheDefinition(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*fakeAPI)
		// most is how often it is read, at most, in a minute in which a gate's status is
		// written each second.
		most int
	}{
		"confirmed":                    {func(*fakeAPI) {}, 0},
		"the definition is young":      {func(api *fakeAPI) { api.definition.CreationTimestamp = metav1.Now() }, 0},
		"young, by a clock that leads": {func(api *fakeAPI) { api.definition.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour)) }, 0},
		"it may not be read":           {func(api *fakeAPI) { api.definitionErr = errForbidden }, 7}, // after 1, 2, 4, 8, 15 seconds, and so on
		"it is being deleted":          {func(api *fakeAPI) { api.definition.DeletionTimestamp = new(metav1.Now()) }, 7},
	} {
		t.Run(name, func(t *testing.T) {
			runFeed(t, func(api *fakeAPI) { twoGates(api); c.prepare(api) }, func(t *testing.T, f *testFeed) {
				reads := func() (n int) { f.api.set(func() { n = f.api.definitionReads }); return n }
				first := reads()
				for i := range 60 {
					g := testGate("g")
					g.Status.ObservedGeneration = int64(i)
					f.api.gates().put(g)
					pass(time.Second)
				}
				if later := reads() - first; first == 0 || later > c.most || later == 0 && c.most > 0 {
					t.Errorf("read %d times, and %d times while statuses were written; want at most %d", first, later, c.most)
				}
			})
		})
	}
}
