// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestCSIDriverSignal(t *testing.T) {
	const driver = "ebs.csi.aws.com"
	e := newEnv(t)
	start := time.Now()
	e.startController(0)
	other := e.declare(newGate("other", keyA, byLabel("ready")))
	e.loggedSoFar()
	if n := e.requestsFor("csinodes", "list", start) + e.requestsFor("csinodes", "watch", start); n > 0 {
		t.Errorf("the controller read CSINodes %d times, and no gate needs them", n)
	}
	e.must(e.admin.Delete(t.Context(), other))
	ng := e.declare(newGate("ebs", keyA, v1alpha1.SignalSource{
		CSIDriver: &v1alpha1.CSIDriverSignal{Name: driver, Allocatable: true},
	}))
	e.must(e.condition("ebs", v1alpha1.ConditionAccepted, "True", v1alpha1.ReasonNoBootEvidence))

	k := e.kubelet("n1")
	born := k.register()
	e.waitsFor("ebs", "n1", v1alpha1.ReadingMissing)
	neighbour := e.kubelet("n2")
	neighbour.register()
	neighbour.registersDrivers(csiDriver(driver, 24))
	neighbour.becomes("ebs", isOpen, keyA)
	k.registersDrivers()
	k.registersDrivers(csiDriver("other"), csiDriver(driver))
	e.eventually("the gate waits for the driver's volume limit", func() error {
		if w := e.waitingMessage("ebs", "n1"); !strings.Contains(w.Message, "volume limit of CSI driver "+driver) {
			return fmt.Errorf("waiting: %+v", w)
		}
		return nil
	})
	e.must(k.is("ebs", isClosed, keyA))
	k.registersDrivers(csiDriver("other"), csiDriver(driver, 24))
	k.becomes("ebs", isOpen, keyA)

	// Another machine registers under the same name.
	e.must(e.admin.Delete(t.Context(), born))
	k.register()
	e.waitsFor("ebs", "n1", v1alpha1.ReadingFormerNode)
	e.must(k.is("ebs", isClosed, keyA))
	k.registersDrivers(csiDriver(driver, 24))
	k.becomes("ebs", isOpen, keyA)
	k.wrote(1)

	e.must(e.admin.Delete(t.Context(), ng))
	e.awaitWatchEnded("csinodes", start)
}

func TestResourceSignal(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	e := newEnv(t)
	e.startController(0)
	two := resource.MustParse("2")
	e.declare(newGate("gpu", keyA, v1alpha1.SignalSource{Resource: &v1alpha1.ResourceSignal{Name: gpu, AtLeast: &two}}))
	k := e.kubelet("n1")
	k.register()
	e.waitsFor("gpu", "n1", v1alpha1.ReadingMissing)
	k.reportsResource(gpu, 1)
	e.waitsFor("gpu", "n1", v1alpha1.ReadingInsufficient)
	e.must(k.is("gpu", isClosed, keyA))
	k.reportsResource(gpu, 2)
	k.becomes("gpu", isOpen, keyA)

	// A kubelet that starts reports 0 of a device plugin's resource until the plugin has
	// registered again.
	k.boot = string(uuid.NewUUID())
	k.reportsResource(gpu, 0)
	k.becomes("gpu", isClosed, keyA)
	e.waitsFor("gpu", "n1", v1alpha1.ReadingInsufficient)
	k.reportsResource(gpu, 8)
	k.becomes("gpu", isOpen, keyA)
	k.wrote(3)
}

// One of several alternatives is sufficient.
func TestAnyOfSignal(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("gpu", keyA, v1alpha1.SignalSource{})
	ng.Spec.OpenWhen[0].AnyOf = []v1alpha1.NamedSource{
		{Name: "plugin", SignalSource: v1alpha1.SignalSource{Resource: &v1alpha1.ResourceSignal{Name: "nvidia.com/gpu"}}},
		{Name: "exempt", SignalSource: byLabel("exempt")},
	}
	e.declare(ng)
	nodes := e.registered("plugged", "exempt")
	for _, k := range nodes {
		e.waitsFor("gpu", k.name, v1alpha1.ReadingNoneHolds)
		k.must(k.is("gpu", isClosed, keyA))
	}
	nodes[0].reportsResource("nvidia.com/gpu", 1)
	nodes[0].becomes("gpu", isOpen, keyA)
	nodes[1].label("exempt")
	nodes[1].becomes("gpu", isOpen, keyA)
}
