// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// requestsFor counts the controller's finished requests for a resource since
// some moment; a watch is finished when it has been ended.
func (e *env) requestsFor(resource, verb string, since time.Time) (n int) {
	e.Helper()
	for _, event := range e.audit() {
		if event.ObjectRef.Resource == resource && event.Verb == verb && event.User.Username == installationUser &&
			!event.Received.Time.Before(since) {
			n++
		}
	}
	return n
}

func TestCSIDriverSignal(t *testing.T) {
	const driver = "ebs.csi.aws.com"
	e := newEnv(t)
	start := time.Now()
	e.startController(0)
	other := e.declare(newGate("other", keyA, byLabel("ready")))
	if n := e.requestsFor("csinodes", "list", start) + e.requestsFor("csinodes", "watch", start); n > 0 {
		t.Errorf("CSINodes were asked for %d times, and no gate needs them", n)
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
	k.settled()
	e.must(k.is("ebs", isClosed, keyA))
	k.registersDrivers(csiDriver("other"), csiDriver(driver, 24))
	k.becomes("ebs", isOpen, keyA)

	// The machine is replaced by another under the same name.
	e.must(e.admin.Delete(t.Context(), born))
	k.register()
	e.waitsFor("ebs", "n1", v1alpha1.ReadingFormerNode)
	e.must(k.is("ebs", isClosed, keyA))
	k.registersDrivers(csiDriver(driver, 24))
	k.becomes("ebs", isOpen, keyA)
	k.wrote(1)

	e.must(e.admin.Delete(t.Context(), ng))
	e.eventually("nobody watches CSINodes any more", func() error {
		if e.requestsFor("csinodes", "watch", start) == 0 {
			return errNotYet
		}
		return nil
	})
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

	// A kubelet that starts calls the resources of device plugins 0, until these
	// have registered again.
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
		{Name: "spared", SignalSource: byLabel("spared")},
	}
	e.declare(ng)
	nodes := e.registered("plugged", "spared")
	for _, k := range nodes {
		e.waitsFor("gpu", k.name, v1alpha1.ReadingNoneHolds)
		k.must(k.is("gpu", isClosed, keyA))
	}
	nodes[0].reportsResource("nvidia.com/gpu", 1)
	nodes[0].becomes("gpu", isOpen, keyA)
	nodes[1].label("spared")
	nodes[1].becomes("gpu", isOpen, keyA)
}
