// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/nodegate/nodegate/testcluster/await"
)

// draName is the name of the DRA driver.
const draName = "dra.test.nodegate.dev"

// A gate that waits for the daemon and for ResourceSlices opens when a DRA driver has registered
// with the kubelet and published its devices. After a reboot, the kubelet deletes the slices, and
// the gate opens when the driver has published them again, although the daemon is ready earlier.
func TestDRADriver(t *testing.T) {
	h := newHostWith(t, map[string]string{registersLabel: "dra"})
	h.setReady(t, true)
	must(t, h.PowerOn())
	h.await(t, true)
	h.awaitAgent(t, true)
	if opened := h.openedIn(h.BootID()); len(opened) > 0 {
		t.Error("the gate opened before the driver had published its devices")
	}
	driver := h.startDRADriver(t)
	h.await(t, false)
	former := h.resourceSlices(t)
	h.assertPublished(t, former)

	driver.Stop() // it ends with the machine, and leaves its slices
	must(t, h.PowerOff())
	if left := h.resourceSlices(t); len(left) != len(former) {
		t.Errorf("%d of %d ResourceSlices exist while the machine is off", len(left), len(former))
	}
	deletions := h.watchSlices(t)
	must(t, h.PowerOn())
	h.await(t, true)
	var deleted []int64
	must(t, await.Until(t.Context(), "deletion of ResourceSlices", func(context.Context) error {
		select {
		case at := <-deletions:
			deleted = append(deleted, at)
		default:
		}
		if len(deleted) < len(former) {
			return fmt.Errorf("%d of %d ResourceSlices of the previous boot are deleted", len(deleted), len(former))
		}
		return nil
	}))
	h.awaitAgent(t, true)
	booted, _ := h.bootAndClosing(t)
	t.Logf("the kubelet deleted the ResourceSlices after it had reported the boot: %v", slices.Min(deleted) > version(t, booted))
	h.startDRADriver(t)
	h.await(t, false)
	h.assertPublished(t, h.resourceSlices(t))
}

// assertPublished checks that the gate opened in the current boot after all slices of the pool
// existed, and that no slice is from the previous boot.
func (h *host) assertPublished(t *testing.T, all []resourcev1.ResourceSlice) {
	t.Helper()
	opened := h.openedIn(h.BootID())
	if len(opened) != 1 || len(all) != 2 {
		t.Fatalf("the gate opened %d times in this boot, and there are %d ResourceSlices", len(opened), len(all))
	}
	for i := range all {
		owner := all[i].OwnerReferences
		if len(owner) != 1 || owner[0].UID != h.newest().UID {
			t.Errorf("ResourceSlice %s has the owners %v", all[i].Name, owner)
		}
		if version(t, &all[i]) > version(t, opened[0]) {
			t.Errorf("the gate opened before ResourceSlice %s existed", all[i].Name)
		}
	}
}

// resourceSlices returns the ResourceSlices of the machine.
func (h *host) resourceSlices(t *testing.T) []resourcev1.ResourceSlice {
	t.Helper()
	var all resourcev1.ResourceSliceList
	must(t, h.client.List(t.Context(), &all))
	return slices.DeleteFunc(all.Items, func(s resourcev1.ResourceSlice) bool { return s.Spec.NodeName == nil || *s.Spec.NodeName != h.name })
}

// watchSlices returns the resource versions at which ResourceSlices are deleted.
func (h *host) watchSlices(t *testing.T) <-chan int64 {
	t.Helper()
	api, err := kubernetes.NewForConfig(h.cluster.Admin())
	must(t, err)
	w, err := api.ResourceV1().ResourceSlices().Watch(t.Context(), metav1.ListOptions{FieldSelector: resourcev1.ResourceSliceSelectorNodeName + "=" + h.name})
	must(t, err)
	versions := make(chan int64, 10)
	go func() {
		for event := range w.ResultChan() {
			if s, ok := event.Object.(*resourcev1.ResourceSlice); ok && event.Type == watch.Deleted {
				versions <- version(t, s)
			}
		}
	}()
	return versions
}

// startDRADriver starts a DRA driver on the machine, which publishes a pool of two slices, until
// the test ends.
func (h *host) startDRADriver(t *testing.T) *kubeletplugin.Helper {
	t.Helper()
	api, err := kubernetes.NewForConfig(h.cluster.Admin())
	must(t, err)
	driver, err := kubeletplugin.Start(t.Context(), draDriver{t},
		kubeletplugin.DriverName(draName), kubeletplugin.NodeName(h.name), kubeletplugin.KubeClient(api),
		kubeletplugin.HealthService(false), kubeletplugin.RegistrarListener(h.listen), kubeletplugin.PluginListener(h.listen))
	must(t, err)
	t.Cleanup(driver.Stop)
	slice := func(device string) resourceslice.Slice {
		return resourceslice.Slice{Devices: []resourcev1.Device{{Name: device}}}
	}
	must(t, driver.PublishResources(t.Context(), resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		h.name: {Slices: []resourceslice.Slice{slice("first"), slice("second")}},
	}}))
	return driver
}

// listen creates a socket that has a path on the machine.
func (h *host) listen(ctx context.Context, path string) (net.Listener, error) {
	path = filepath.Join(h.Var(), strings.TrimPrefix(path, "/var"))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path)); err != nil {
		return nil, err
	}
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}

// draDriver is the part of a DRA driver that prepares devices for pods. No pod uses them.
type draDriver struct{ t *testing.T }

func (draDriver) PrepareResourceClaims(context.Context, []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	return nil, errors.New("there are no claims")
}

func (draDriver) UnprepareResourceClaims(context.Context, []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	return nil, errors.New("there are no claims")
}

func (draDriver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func (d draDriver) HandleError(ctx context.Context, err error, message string) {
	if ctx.Err() == nil && !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.t.Errorf("the DRA driver: %s: %v", message, err)
	}
}
