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
	e.eventually("gate "+ng.Name+" reports mode "+string(mode), func() error {
		return e.condition(ng.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, reason)
	})
}

// printedRow returns the row that kubectl prints for a gate, by column. It is from the API
// server's table.
func (e *env) printedRow(name string) map[string]string {
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
		if c := c.(map[string]any); c["priority"] == int64(0) { // printed without -o wide
			out[strings.ToUpper(c["name"].(string))] = fmt.Sprint(cells[i])
		}
	}
	return out
}

// On an existing fleet, a dry run counts the nodes that it would close, and writes nothing.
// When the gate is enforced, it closes the reported nodes. In dry run again, it releases all
// nodes.
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
	ng.Spec.Timing.CloseAfterSeconds = new(int32(0))
	ng.Spec.Budget.MaxReclosed = new(intstr.FromString("50%"))
	e.declare(ng)
	e.must(e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionTrue, "DryRun"))
	e.counts("agent", 6, 2, 3) // half of six; one is waiting for budget
	e.eventually("the gate reports that a node waits for budget", func() error {
		return e.condition("agent", v1alpha1.ConditionThrottled, metav1.ConditionTrue, "")
	})
	if row := e.printedRow("agent"); row["MODE"] != "DryRun" || row["CLOSED"] != "3" || row["REASON"] != "DryRun" {
		t.Errorf("kubectl prints %v", row)
	}
	kubelets[0].label("example.com/fit") // would open, or be adopted as open
	e.counts("agent", 6, 3, 3)
	born := e.kubelet("born")
	if node := born.register(); hasTaint(node, keyA) || len(node.Annotations) > 0 {
		t.Errorf("the dry run closed at birth: taints %v, annotations %v", keys(node), node.Annotations)
	}
	e.counts("agent", 7, 3, 4) // half of seven, rounded up
	for _, k := range append(kubelets, born) {
		e.must(k.is("agent", isNone, keyA))
		k.wrote(0)
	}
	e.must(e.admin.Delete(t.Context(), born.node()))
	e.counts("agent", 6, 3, 3)

	predicted := e.waiting("agent")
	e.inMode(ng, v1alpha1.ModeEnforce)
	for _, k := range kubelets {
		state := isOpen
		if predicted[k.name] {
			state = isClosed
		}
		k.becomes("agent", state, keyA)
	}
	e.counts("agent", 6, 3, 3)
	e.eventually("the status names the nodes that the dry run named", func() error {
		if closed := e.waiting("agent"); !maps.Equal(predicted, closed) {
			return fmt.Errorf("the dry run named %v, the enforced gate %v", predicted, closed)
		}
		return nil
	})

	e.inMode(ng, v1alpha1.ModeDryRun)
	for _, k := range kubelets {
		k.becomes("agent", isNone, keyA)
	}
	e.counts("agent", 6, 3, 3) // the dry run continues from the enforced state
}

// waiting returns the names of the nodes in a gate's status.waiting.
func (e *env) waiting(name string) map[string]bool {
	e.Helper()
	out := map[string]bool{}
	for _, w := range e.readGate(name).Status.Waiting {
		out[w.Node] = true
	}
	return out
}

// A gate whose key is not allowed works in dry run, and is not accepted once it is enforced.
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
	e.eventually("the gate is not accepted", func() error {
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
	kubelets := e.registered("ready", "not-ready", "rebooted")
	ready, notReady, rebooted := kubelets[0], kubelets[1], kubelets[2]
	for _, k := range kubelets {
		k.becomes("agent", isClosed, keyA)
	}
	rebooted.label("example.com/fit")
	rebooted.becomes("agent", isOpen, keyA)
	e.inMode(ng, v1alpha1.ModePaused)
	if row := e.printedRow("agent"); row["MODE"] != "Paused" || row["READY"] != "True" {
		t.Errorf("kubectl prints %v", row)
	}
	born := e.kubelet("born")
	e.eventually("the API server does not close the gate at birth", func() error {
		probe := born.newNode()
		e.must(born.api.Create(t.Context(), probe, client.DryRunAll))
		if hasTaint(probe, keyA) {
			return fmt.Errorf("a probe node has taints %s", keys(probe))
		}
		return nil
	})
	born.register()
	ready.label("example.com/fit")
	rebooted.reboot()
	rebooted.patch(`{"metadata":{"labels":{"example.com/fit":null}}}`)
	e.counts("agent", 4, 1, 2)
	e.settled()
	for k, want := range map[*kubelet]struct {
		state  string
		writes int
	}{ready: {isClosed, 0}, notReady: {isClosed, 0}, rebooted: {isOpen, 1}, born: {isNone, 0}} {
		e.must(k.is("agent", want.state, keyA))
		k.wrote(want.writes) // none since the gate is paused
	}
	e.inMode(ng, v1alpha1.ModeEnforce)
	ready.becomes("agent", isOpen, keyA)
	rebooted.becomes("agent", isClosed, keyA)
	born.becomes("agent", isClosed, keyA) // it is still new
	e.must(notReady.is("agent", isClosed, keyA))
	if r := rebooted.record("agent"); r.Reason != v1alpha1.ReasonRebooted {
		t.Errorf("closed for %s, want %s", r.Reason, v1alpha1.ReasonRebooted)
	}
	e.inMode(ng, v1alpha1.ModePaused)
	e.must(e.admin.Delete(t.Context(), ng)) // this opens the gate in any mode
	for _, k := range append(kubelets, born) {
		k.becomes("agent", isNone, keyA)
	}
}
