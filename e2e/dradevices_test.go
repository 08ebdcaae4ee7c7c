// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// gpus returns a signal that requires devices of the tests' DRA driver.
func gpus(minDevices int32, selectors ...string) v1alpha1.SignalSource {
	s := &v1alpha1.ResourceSlicesSignal{Driver: draDriver, MinDevices: minDevices}
	for _, text := range selectors {
		s.Selectors = append(s.Selectors, v1alpha1.DeviceSelector{CEL: v1alpha1.CELDeviceSelector{Expression: text}})
	}
	return v1alpha1.SignalSource{ResourceSlices: s}
}

// gpu returns a device of a model.
func gpu(name, model string, taints ...resourcev1.DeviceTaint) resourcev1.Device {
	return resourcev1.Device{Name: name, Taints: taints, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		"model": {StringValue: &model},
	}}
}

// offers changes the devices of a slice.
func (k *kubelet) offers(slice *resourcev1.ResourceSlice, devices ...resourcev1.Device) {
	k.Helper()
	k.must(k.api.Get(k.Context(), client.ObjectKeyFromObject(slice), slice))
	slice.Spec.Devices = devices
	k.must(k.api.Update(k.Context(), slice))
}

// waitsForDevices waits until a gate is closed because of too few devices, with a message that
// contains these texts, and 'kubectl gate why' prints them.
func (e *env) waitsForDevices(gateName, node string, texts ...string) {
	e.Helper()
	e.eventually(fmt.Sprintf("gate %s reports %q", gateName, texts), func() error {
		w := e.waitingMessage(gateName, node)
		for _, text := range texts {
			if w.Reason != string(v1alpha1.ReadingTooFewDevices) || !strings.Contains(w.Message, text) {
				return fmt.Errorf("waiting: %+v", w)
			}
		}
		return nil
	})
	e.tells(e.ask(e.cluster.Admin(), "why", node), 1, texts...)
}

// A gate waits for usable devices that match a selector: those without a taint of their driver or
// of a DeviceTaintRule.
func TestDevicesMustBeUsable(t *testing.T) {
	clustertest.SkipBefore(t, "1.37", "DeviceTaintRules of resource.k8s.io/v1")
	e := newEnv(t)
	start := time.Now()
	e.startController(0)
	ng := e.declare(onRegression(newGate("devices", keyA, gpus(2, `device.attributes["`+draDriver+`"].model == "large"`))))
	k := e.kubelet("n1")
	k.register()
	e.waitsFor("devices", "n1", v1alpha1.ReadingMissing)
	slice := k.publishes("gpus", 1, 1)
	e.waitsForDevices("devices", "n1", "0 of 2 devices of DRA driver "+draDriver, "the selectors could not be evaluated for 1", "no such key: model")

	sick := resourcev1.DeviceTaint{Key: "example.com/unhealthy", Value: "ecc", Effect: resourcev1.DeviceTaintEffectNoSchedule}
	note := resourcev1.DeviceTaint{Key: "example.com/info", Effect: resourcev1.DeviceTaintEffectNone}
	k.offers(slice, gpu("gpu-0", "large", note), gpu("gpu-1", "large", sick), gpu("gpu-2", "small"))
	e.waitsForDevices("devices", "n1", "1 of 2 devices", "example.com/unhealthy=ecc:NoSchedule on device gpu-1 of pool n1")
	e.must(k.is("devices", isClosed, keyA))
	k.offers(slice, gpu("gpu-0", "large", note), gpu("gpu-1", "large"), gpu("gpu-2", "small"))
	k.becomes("devices", isOpen, keyA)

	rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new(draDriver), Pool: &k.name, Device: new("gpu-2")},
		Taint:          resourcev1.DeviceTaint{Key: "example.com/broken", Effect: resourcev1.DeviceTaintEffectNoExecute},
	}}
	e.must(e.admin.Create(t.Context(), rule))
	k.settled()
	e.must(k.is("devices", isOpen, keyA)) // the gate does not count this device
	e.must(e.admin.Delete(t.Context(), rule))
	rule.ResourceVersion, rule.Spec.DeviceSelector.Device = "", new("gpu-0")
	e.must(e.admin.Create(t.Context(), rule))
	k.becomes("devices", isClosed, keyA)
	e.waitsForDevices("devices", "n1", "1 of 2 devices", "example.com/broken:NoExecute on device gpu-0 by DeviceTaintRule broken")
	e.must(e.admin.Delete(t.Context(), rule))
	k.becomes("devices", isOpen, keyA)

	if n := e.openWatches("devicetaintrules", start); n != 1 {
		t.Errorf("%d watches of DeviceTaintRules, want 1", n)
	}
	e.must(e.admin.Delete(t.Context(), ng))
	e.awaitWatchEnded("devicetaintrules", start)
}

// sharesDevice creates a slice of a pool that the nodes of a rack can reach, or all nodes.
func (e *env) sharesDevice(pool, name, rack string, count int64) {
	e.Helper()
	o := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: draDriver, Pool: resourcev1.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: count},
		Devices: []resourcev1.Device{gpu(name, "large")},
	}}
	if rack == "" {
		o.Spec.AllNodes = new(true)
	} else {
		o.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "example.com/rack", Operator: corev1.NodeSelectorOpIn, Values: []string{rack}},
		}}}}
	}
	e.must(e.admin.Create(e.Context(), o))
	e.deletedAtEnd(o)
}

// A gate waits for devices of pools that its node can reach by its labels. Neither node-local
// slices nor pools of other racks count, but all slices of a pool must exist.
func TestDevicesOfSharedPools(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	shared := gpus(2)
	shared.ResourceSlices.Pools = v1alpha1.PoolsShared
	e.declare(onRegression(newGate("fabric", keyA, shared)))
	e.declare(newGate("local", keyB, gpus(1)))
	one, _ := e.registerWith("n1", "example.com/rack", "1")
	two, _ := e.registerWith("n2", "example.com/rack", "2")
	for _, k := range []*kubelet{one, two} {
		k.publishes("gpu", 1, 1)
		k.becomes("local", isOpen, keyB)
		e.waitsFor("fabric", k.name, v1alpha1.ReadingMissing)
	}
	e.sharesDevice("racks", "rack-1", "1", 2)
	e.waitsFor("fabric", "n1", v1alpha1.ReadingPoolIncomplete)
	e.waitsFor("fabric", "n2", v1alpha1.ReadingMissing)
	e.sharesDevice("racks", "rack-2", "2", 2)
	for _, k := range []*kubelet{one, two} {
		e.waitsForDevices("fabric", k.name, "1 of 2 devices of DRA driver "+draDriver)
	}
	e.sharesDevice("everywhere", "switch", "", 1)
	for _, k := range []*kubelet{one, two} {
		k.becomes("fabric", isOpen, keyA)
	}

	one.setLabel("example.com/rack", "3")
	one.becomes("fabric", isClosed, keyA)
	e.must(two.is("fabric", isOpen, keyA))
	e.sharesDevice("third", "rack-3", "3", 1)
	one.becomes("fabric", isOpen, keyA)
}

// Gates whose selectors are invalid are rejected by the API server, or not accepted.
func TestDevicesBadSelectors(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	err := e.admin.Create(t.Context(), newGate("bad", keyA, gpus(0, "true")))
	if err == nil || !strings.Contains(err.Error(), "spec.openWhen[0].resourceSlices.selectors: Invalid value") || !strings.Contains(err.Error(), "set minDevices, or remove selectors") {
		t.Errorf("selectors without minDevices: %v", err)
	}
	for text, want := range map[string]string{
		`device.model == "large"`:                       "line 1, column 7: undefined field 'model'",
		`device.driver`:                                 "must evaluate to bool",
		`device.attributes["a"].b.matches("(x+)+") && `: "Syntax error",
	} {
		ng := newGate("invalid", keyA, gpus(1, text))
		e.must(e.admin.Create(t.Context(), ng))
		e.isInvalid("invalid")
		e.must(e.messageContains("invalid", v1alpha1.ConditionAccepted, want))
		e.must(e.admin.Delete(t.Context(), ng))
	}
}
