// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// drivers returns the names of n DRA drivers.
func drivers(n int) []string { return numbered("driver", n) }

// ofDriver changes the driver of a slice, and its name accordingly.
func ofDriver(driver string, o *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	o.Name, o.Spec.Driver = driver+"-"+o.Name, driver
	return o
}

// poolsOf returns queries for the shared pools of drivers.
func poolsOf(drivers []string) (all []gate.DeviceQuery) {
	for _, driver := range drivers {
		all = append(all, gate.DeviceQuery{Driver: driver, Pools: v1alpha1.PoolsShared})
	}
	return all
}

// The number of watches of ResourceSlices is bounded, while drivers are added and removed. A
// shared watch has the same facts as one of each driver. Slices of other drivers do not count.
func TestWatchesOfResourceSlicesAreBounded(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		for _, driver := range append(drivers(8), "foreign") {
			for _, of := range []string{driver, ""} {
				api.slices(of).Put(ofDriver(driver, testSlice("x", "a", "a1", 1, 1)))
				api.sharedSlices(of).Put(ofDriver(driver, sharedSlice("y", 1, "label")))
			}
		}
	}, func(t *testing.T, f *testFeed) {
		for _, step := range sharingSteps {
			needed := gate.Needs{ResourceSlices: drivers(step.needed), Devices: poolsOf(drivers(step.needed))}
			f.SetNeeds(needed)
			synctest.Wait()
			watched, want := f.watches("resourceslices/"), 2*step.own
			if step.shared {
				want += 2
			}
			if len(watched) != want || slices.Contains(watched, "resourceslices/") != step.shared || slices.Contains(watched, "resourceslices/shared/") != step.shared {
				t.Errorf("%d drivers: %d watches, want %d: %.200v", step.needed, len(watched), want, watched)
			}
			facts := f.facts(t, "a")
			if len(facts.ResourceSlices) != step.needed || len(facts.SharedPools) != step.needed {
				t.Errorf("%d drivers: %d observed, with shared pools of %d", step.needed, len(facts.ResourceSlices), len(facts.SharedPools))
			}
			for i, driver := range needed.ResourceSlices {
				on, pools, want := facts.ResourceSlices[driver], facts.SharedPools[needed.Devices[i]], 0
				if i < 8 {
					want = 1
				}
				if len(on) != want || len(pools) != want || want > 0 && (on[0].Name != driver+"-x" || pools[0].Slices[0].Name != driver+"-y") {
					t.Errorf("%d drivers: %s has %v, and shared %v", step.needed, driver, on, pools)
				}
			}
		}
	})
}

// One watch serves thousands of drivers, as one watch of each would.
func TestManyDriversShareAWatch(t *testing.T) {
	runFeed(t, func(api *fakeAPI) {
		api.nodes().Put(kubetest.Node("a", "a1"))
		api.nodes().Put(kubetest.Node("b", "b1"))
	}, func(t *testing.T, f *testFeed) {
		needed := gate.Needs{ResourceSlices: drivers(4096)}
		f.SetNeeds(needed)
		f.handler.take()
		all := f.api.slices("")
		all.Put(ofDriver("driver-0007", testSlice("x", "a", "a1", 1, 1)))
		f.wantChanged(t, "a needed driver", "a")
		all.Put(ofDriver("foreign", testSlice("x", "b", "b1", 1, 1)))
		f.wantChanged(t, "another driver")
		on := func(driver string) int { return len(f.facts(t, "a").ResourceSlices[driver]) }
		if on("driver-0007") != 1 || on("driver-0008") != 0 {
			t.Errorf("slices %v", f.facts(t, "a").ResourceSlices["driver-0007"])
		}

		// If devices of a driver are needed as well, only its own slices are read again.
		devices := gate.DeviceQuery{Driver: "driver-0007", Pools: v1alpha1.PoolsNodeLocal, Selectors: gate.SelectorsOf(nil)}
		f.api.slices("driver-0007").Put(ofDriver("driver-0007", withDevices(testSlice("x", "a", "a1", 1, 1), "gpu")))
		f.SetNeeds(gate.Needs{ResourceSlices: needed.ResourceSlices, Devices: []gate.DeviceQuery{devices}})
		synctest.Wait()
		if got, want := f.watches("resourceslices/"), []string{"resourceslices/", "resourceslices/driver-0007"}; !slices.Equal(got, want) || all.lists != 1 {
			t.Errorf("watches %v, want %v; all slices were listed %d times", got, want, all.lists)
		}
		if facts := f.facts(t, "a"); len(facts.Devices[devices]) != 1 || facts.Devices[devices][0].Usable != 1 || on("driver-0007") != 1 {
			t.Errorf("devices %+v, slices %v", facts.Devices, facts.ResourceSlices["driver-0007"])
		}
		all.remove("driver-0007-x") // which the shared watch serves no longer
		if on("driver-0007") != 1 {
			t.Error("the shared watch changes facts of a driver that has its own")
		}

		// While the shared watch fails, the slices of all drivers that it serves are unknown.
		all.set(errForbidden)
		all.hangUp()
		kubetest.Pass(time.Second)
		if facts := f.facts(t, "a"); len(facts.ResourceSlices) != 1 || len(facts.Devices) != 1 {
			t.Errorf("%d drivers observed without permission", len(facts.ResourceSlices))
		}
		i := slices.IndexFunc(f.Status(), func(s reflector.Status) bool { return s.Name == "resourceslices" })
		if i < 0 || f.Status()[i].Live || !errors.Is(f.Status()[i].Err, errForbidden) {
			t.Errorf("status %+v", f.Status())
		}
		all.set(nil)
		kubetest.Pass(time.Minute)
		if facts := f.facts(t, "a"); len(facts.ResourceSlices) != 4096 {
			t.Errorf("%d drivers observed afterwards", len(facts.ResourceSlices))
		}
	})
}

// An API server selects the slices of all drivers by whether they name a node.
func TestManyDriversOnAPIServer(t *testing.T) {
	s := kubetest.Start(t)
	s.Node(t, "drivers", func(*corev1.Node) {})
	create := func(o *resourcev1.ResourceSlice) {
		t.Helper()
		o.UID, o.OwnerReferences = "", nil
		if _, err := s.ResourceV1().ResourceSlices().Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.ResourceV1().ResourceSlices().Delete(context.Background(), o.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	create(ofDriver("driver-0007", testSlice("x", "drivers", "", 1, 1)))
	create(ofDriver("driver-0007", sharedSlice("y", 1, "label")))
	f, _ := observeAs(t, s.Admin())
	needed := gate.Needs{ResourceSlices: drivers(40), Devices: poolsOf(drivers(40))}
	f.SetNeeds(needed)
	kubetest.Eventually(t, "the slices of all drivers are observed", func() bool {
		facts, ok := f.Facts("drivers")
		return ok && len(facts.ResourceSlices) == 40 && len(facts.SharedPools) == 40
	})
	facts, _ := f.Facts("drivers")
	for i, driver := range needed.ResourceSlices {
		want := 0
		if i == 7 {
			want = 1
		}
		if local, shared := facts.ResourceSlices[driver], facts.SharedPools[needed.Devices[i]]; len(local) != want || len(shared) != want {
			t.Errorf("%s has %v, and shared %v", driver, local, shared)
		}
	}
}
