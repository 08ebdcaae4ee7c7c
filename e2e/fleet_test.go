// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

const fleetSize = 300

// fleet registers many nodes.
func (e *env) fleet(n int) []*kubelet {
	e.Helper()
	all := make([]*kubelet, n)
	for i := range all {
		all[i] = e.kubelet(fmt.Sprintf("old-%03d", i))
	}
	e.each(all, func(k *kubelet) { k.register() })
	return all
}

// each calls a function for every node, a few at a time.
func (e *env) each(all []*kubelet, do func(*kubelet)) {
	e.Helper()
	var running sync.WaitGroup
	limit := make(chan struct{}, 8)
	for _, k := range all {
		limit <- struct{}{}
		running.Go(func() { defer func() { <-limit }(); do(k) })
	}
	running.Wait()
}

// A gate does not close on a fleet that is older than the gate.
func TestRunningFleetIsSafe(t *testing.T) {
	e := newFleetEnv(t)
	fleet := e.fleet(fleetSize)
	e.startController(time.Hour)
	closed := e.watchFor(func(n *corev1.Node) bool { return hasTaint(n, keyA) || len(records(n)) > 0 })

	// A gate whose signals never hold.
	ng := newGate("agent", keyA, byLabel("never"))
	ng.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "none"}
	e.declare(ng)
	// Its selector is widened to the whole fleet.
	e.edit(ng, func() { ng.Spec.NodeSelector.MatchLabels = nil })
	e.eventually("the whole fleet is selected", func() error {
		e.must(e.admin.Get(t.Context(), client.ObjectKeyFromObject(ng), ng))
		if ng.Status.Nodes.Selected < fleetSize {
			return fmt.Errorf("counts: %+v", ng.Status.Nodes)
		}
		return nil
	})
	// No heartbeats for so long that the node lifecycle controller declares
	// every node unreachable.
	e.eventually("the whole fleet is silent", func() error {
		if n := e.silent(); n < fleetSize {
			return fmt.Errorf("%d nodes are silent", n)
		}
		return nil
	})
	e.each(fleet, func(k *kubelet) { k.report(corev1.ConditionTrue, "") })
	// Every node reboots.
	e.each(fleet, (*kubelet).reboot)
	// The CRD goes, and with it the gate; both come back.
	e.deleteCRD()
	e.restoreCRD(ng)
	e.settledFleet()

	if n := closed(); n > 0 {
		t.Errorf("nodes that ran before the gate existed were seen closed %d times, want never", n)
	}
	for _, event := range e.audit() {
		if ref := event.ObjectRef; ref.Resource == "nodes" && event.Verb == "patch" && event.User.Username == installationUser &&
			len(ref.Name) > 4 && ref.Name[:4] == "old-" {
			t.Fatalf("nodegate wrote %s: %s", ref.Name, event.RequestObject)
		}
	}
}

// newFleetEnv returns a cluster of its own in which the real node lifecycle
// controller watches over the nodes, with less patience than it has by default
// (50 seconds, and a minute for nodes that are new).
func newFleetEnv(t *testing.T) *env {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	t.Parallel() // it has a cluster of its own
	c, err := testcluster.Start(t.Context(), testcluster.Options{
		Audit: true, Components: []testcluster.Component{testcluster.ControllerManager},
		ExtraArgs: map[testcluster.Component][]string{testcluster.ControllerManager: {
			"--node-monitor-period=1s", "--node-monitor-grace-period=8s", "--node-startup-grace-period=8s",
		}},
	})
	if err != nil {
		t.Fatalf("starting a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Err(), c.Stop()); err != nil {
			t.Errorf("stopping the cluster: %v", err)
		}
	})
	e := &env{T: t, cluster: c, admin: newClient(t, c)}
	e.must(e.apply(t.Context()))
	e.must(e.awaitPolicies(t.Context()))
	return e
}

// silent returns the number of nodes whose Ready condition is Unknown.
func (e *env) silent() (n int) {
	e.Helper()
	var nodes corev1.NodeList
	e.must(e.admin.List(e.Context(), &nodes))
	for i := range nodes.Items {
		for _, c := range nodes.Items[i].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
				n++
			}
		}
	}
	return n
}

// settledFleet waits until the controller is idle.
func (e *env) settledFleet() {
	e.Helper()
	e.eventually("the gate has looked at the whole fleet again", func() error {
		var ng v1alpha1.NodeGate
		e.must(e.admin.Get(e.Context(), client.ObjectKey{Name: "agent"}, &ng))
		if ng.Status.Nodes.Selected < fleetSize || ng.Status.ObservedGeneration != ng.Generation {
			return fmt.Errorf("counts: %+v of generation %d", ng.Status.Nodes, ng.Status.ObservedGeneration)
		}
		return nil
	})
}

func records(n *corev1.Node) []string {
	var names []string
	for key := range n.Annotations {
		if len(key) > len(v1alpha1.RecordAnnotationPrefix) && key[:len(v1alpha1.RecordAnnotationPrefix)] == v1alpha1.RecordAnnotationPrefix {
			names = append(names, key)
		}
	}
	return names
}

func (e *env) definition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Resource.GroupResource().String()}}
}

// crdClient also knows CustomResourceDefinitions.
func (e *env) crdClient() client.Client {
	e.Helper()
	scheme := newScheme(e.T)
	e.must(apiextensionsv1.AddToScheme(scheme))
	api, err := client.New(e.cluster.Admin(), client.Options{Scheme: scheme})
	e.must(err)
	return api
}

func (e *env) deleteCRD() {
	e.Helper()
	api := e.crdClient()
	e.must(api.Delete(e.Context(), e.definition()))
	e.eventually("the CRD is gone", func() error {
		err := api.Get(e.Context(), client.ObjectKeyFromObject(e.definition()), e.definition())
		if err != nil && client.IgnoreNotFound(err) == nil {
			return nil
		}
		return errNotYet
	})
}

// restoreCRD puts the CRD back, and then the gates, as from a backup.
func (e *env) restoreCRD(gates ...*v1alpha1.NodeGate) {
	e.Helper()
	crdtest.Install(e.T, e.cluster.Admin())
	for _, ng := range gates {
		e.eventually("gate "+ng.Name+" is restored", func() error {
			ng.ResourceVersion, ng.UID, ng.Status = "", "", v1alpha1.NodeGateStatus{}
			return e.admin.Create(e.Context(), ng)
		})
	}
}

// While the CRD is missing, closed gates stay closed, and gates still close on new nodes.
func TestCRDGoneHoldsEverything(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	ng := e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("n1")
	k.register()
	e.must(k.is("agent", isClosed, keyA))
	opened := e.watchFor(func(n *corev1.Node) bool { return n.Name == "n1" && !hasTaint(n, keyA) })

	e.deleteCRD()
	stop()
	e.startController(0) // one that never saw the gate
	late := e.kubelet("late")
	if born := late.register(); !hasTaint(born, keyA) {
		t.Error("with the CRD gone, a node was born untainted")
	}
	k.patch(`{"metadata":{"labels":{"touched":""}}}`)
	e.restoreCRD(ng)
	k.patch(`{"metadata":{"labels":{"touched":null}}}`)
	e.eventually("the gate is Ready again", func() error { return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionTrue, "") })
	if n := opened(); n > 0 {
		t.Errorf("the node was seen opened %d times while its gate was invisible", n)
	}
	k.patch(`{"metadata":{"labels":{"ready":""}}}`)
	k.becomes("agent", isOpen, keyA)
}
