// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// inMode changes the mode of a gate, and waits until its status reports it.
func (e *env) inMode(ng *v1alpha1.NodeGate, mode v1alpha1.Mode) {
	e.Helper()
	e.edit(ng, func() { ng.Spec.Mode = mode })
	reason := string(mode)
	if mode == v1alpha1.ModeEnforce {
		reason = v1alpha1.ReasonReady
	}
	e.eventually("gate "+ng.Name+" is in mode "+string(mode), func() error {
		return e.condition(ng.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, reason)
	})
}

// counts waits until a gate's status counts its nodes so: selected, open, closed.
func (e *env) counts(name string, want ...int32) {
	e.Helper()
	e.eventually(fmt.Sprintf("gate %s counts %v", name, want), func() error {
		var ng v1alpha1.NodeGate
		if err := e.admin.Get(e.Context(), client.ObjectKey{Name: name}, &ng); err != nil {
			return err
		}
		if n := ng.Status.Nodes; n.Selected != want[0] || n.Open != want[1] || n.Closed != want[2] {
			return fmt.Errorf("counts are %+v", n)
		}
		return nil
	})
}

// patched counts the controller's successful writes of nodes so far, but of the
// one by which it is known to have done all there is to do.
func (e *env) patched() (n int) {
	for _, event := range e.audit() {
		if event.writesNode() && event.ObjectRef.Name != "fence" {
			n++
		}
	}
	return n
}

// row is what kubectl prints of a gate, by column: the API server's own table.
func (e *env) row(name string) map[string]string {
	e.Helper()
	config := rest.CopyConfig(e.cluster.Admin())
	config.GroupVersion, config.APIPath = &schema.GroupVersion{Group: "nodegate.dev", Version: "v1alpha1"}, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(e.admin.Scheme()).WithoutConversion()
	api, err := rest.RESTClientFor(config)
	e.must(err)
	body, err := api.Get().Resource("nodegates").Name(name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(e.Context())
	e.must(err)
	var table unstructured.Unstructured
	e.must(table.UnmarshalJSON(body))
	columns, _, _ := unstructured.NestedSlice(table.Object, "columnDefinitions")
	rows, _, _ := unstructured.NestedSlice(table.Object, "rows")
	cells, _, _ := unstructured.NestedSlice(rows[0].(map[string]any), "cells")
	out := map[string]string{}
	for i, c := range columns {
		if c := c.(map[string]any); c["priority"] == int64(0) { // what is printed without -o wide
			out[strings.ToUpper(c["name"].(string))] = fmt.Sprint(cells[i])
		}
	}
	return out
}

// On an existing fleet, a dry run counts the nodes that it would close, and writes nothing.
// When the gate is enforced, it closes as many nodes as reported. In dry run again, it
// releases all nodes.
func TestDryRunOnAFleet(t *testing.T) {
	e := newEnv(t)
	kubelets := e.registered("n1", "n2", "n3", "n4", "n5", "n6")
	kubelets[4].label("example.com/fit")
	kubelets[5].label("example.com/fit")
	e.startController(time.Hour) // all are existing nodes
	ng := newGate("agent", keyA, byLabel("example.com/fit"))
	ng.Spec.Mode = v1alpha1.ModeDryRun
	ng.Spec.ExistingNodes = v1alpha1.ExistingClose
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = ptr.To[int32](0)
	ng.Spec.Budget.MaxReclosed = ptr.To(intstr.FromString("50%"))
	before := e.patched()
	e.declare(ng)
	e.must(e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionTrue, "DryRun"))
	e.counts("agent", 6, 2, 3) // half of six, and one has to wait
	e.must(e.condition("agent", v1alpha1.ConditionThrottled, metav1.ConditionTrue, ""))
	if row := e.row("agent"); row["MODE"] != "DryRun" || row["CLOSED"] != "3" || row["REASON"] != "DryRun" {
		t.Errorf("kubectl prints %v", row)
	}
	kubelets[0].label("example.com/fit") // would open, or be taken in
	e.eventually("the dry run follows", func() error {
		var now v1alpha1.NodeGate
		e.must(e.admin.Get(t.Context(), client.ObjectKeyFromObject(ng), &now))
		if n := now.Status.Nodes; n.Open != 3 || n.Closed != 3 {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	born := e.kubelet("born")
	if node := born.register(); hasTaint(node, keyA) || len(node.Annotations) > 0 {
		t.Errorf("a new node is closed: %v %v", keys(node), node.Annotations)
	}
	if n := e.patched() - before; n != 0 {
		t.Errorf("the dry run wrote to %d nodes", n)
	}
	for _, k := range kubelets {
		e.must(k.is("agent", "", keyA))
	}
	e.must(e.admin.Delete(t.Context(), born.node()))
	e.counts("agent", 6, 3, 3)

	said := e.waiting("agent")
	e.inMode(ng, v1alpha1.ModeEnforce)
	e.counts("agent", 6, 3, 3)
	if done := e.waiting("agent"); !maps.Equal(said, done) {
		t.Errorf("said of %v that they would be closed, and closed %v", said, done)
	}
	for _, k := range kubelets {
		state := isOpen
		if said[k.name] {
			state = isClosed
		}
		k.becomes("agent", state, keyA)
	}

	e.inMode(ng, v1alpha1.ModeDryRun)
	for _, k := range kubelets {
		k.becomes("agent", "", keyA)
	}
	e.counts("agent", 6, 3, 3) // goes on where the gate stood
}

// waiting are the nodes that a gate's status names.
func (e *env) waiting(name string) map[string]bool {
	e.Helper()
	var ng v1alpha1.NodeGate
	e.must(e.admin.Get(e.Context(), client.ObjectKey{Name: name}, &ng))
	out := map[string]bool{}
	for _, w := range ng.Status.Waiting {
		out[w.Node] = true
	}
	return out
}

// A gate in dry run works with a key that is not allowed, and reports that it would not be
// accepted if it were enforced.
func TestDryRunOfAKeyThatIsNotAllowed(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("agent", "not-allowed.example.com/x", byLabel("example.com/fit"))
	ng.Spec.Mode = v1alpha1.ModeDryRun
	e.declare(ng)
	k := e.registered("n1")[0]
	e.counts("agent", 1, 0, 1)
	k.wrote(0)
	e.edit(ng, func() { ng.Spec.Mode = v1alpha1.ModeEnforce })
	e.eventually("refused", func() error {
		return e.condition("agent", v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonTaintKeyNotAllowed)
	})
	k.wrote(0)
}

// A paused gate changes nothing, and does not close on nodes that are created in the
// meantime. When it is resumed, it makes all pending changes.
func TestPauseOnTheAPIServer(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("agent", keyA, byLabel("example.com/fit"))
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnReboot
	e.declare(ng)
	kubelets := e.registered("held", "kept", "rebooted")
	for _, k := range kubelets {
		k.becomes("agent", isClosed, keyA)
	}
	kubelets[2].label("example.com/fit")
	kubelets[2].becomes("agent", isOpen, keyA)
	e.inMode(ng, v1alpha1.ModePaused)
	if row := e.row("agent"); row["MODE"] != "Paused" || row["READY"] != "True" {
		t.Errorf("kubectl prints %v", row)
	}
	born := e.kubelet("born")
	e.eventually("births are not closed", func() error {
		probe := born.newNode()
		e.must(born.api.Create(t.Context(), probe, client.DryRunAll))
		if hasTaint(probe, keyA) {
			return fmt.Errorf("it is born with %s", keys(probe))
		}
		return nil
	})
	before := e.patched()
	born.register()
	kubelets[0].label("example.com/fit")
	kubelets[2].reboot()
	kubelets[2].patch(`{"metadata":{"labels":{"example.com/fit":null}}}`)
	e.counts("agent", 4, 1, 2)
	e.settled()
	e.must(kubelets[0].is("agent", isClosed, keyA))
	e.must(kubelets[1].is("agent", isClosed, keyA))
	e.must(kubelets[2].is("agent", isOpen, keyA))
	e.must(born.is("agent", "", keyA))
	if n := e.patched() - before; n != 0 {
		t.Errorf("the paused gate wrote to %d nodes", n)
	}
	e.inMode(ng, v1alpha1.ModeEnforce)
	kubelets[0].becomes("agent", isOpen, keyA)
	kubelets[2].becomes("agent", isClosed, keyA)
	born.becomes("agent", isClosed, keyA) // it is new still
	e.must(kubelets[1].is("agent", isClosed, keyA))
	if r := kubelets[2].record("agent"); r.Reason != v1alpha1.ReasonRebooted {
		t.Errorf("the record says %+v", r)
	}
	e.inMode(ng, v1alpha1.ModePaused)
	e.must(e.admin.Delete(t.Context(), ng)) // which opens, as ever
	for _, k := range append(kubelets, born) {
		k.becomes("agent", "", keyA)
	}
}
