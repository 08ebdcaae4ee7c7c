// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/expression"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// A shutdown is announced by the kubelet's message, which may contain other reasons, or
// by one of the lifecycle conditions. The agent's condition announces nothing in another boot.
func TestAnnouncesShutdown(t *testing.T) {
	const down = "node is shutting down"
	for _, test := range []struct {
		condition corev1.NodeConditionType
		status    corev1.ConditionStatus
		message   string
		want      bool
	}{
		{corev1.NodeReady, corev1.ConditionFalse, down, true},
		{corev1.NodeReady, corev1.ConditionFalse, "[container runtime is down, node is shutting down]", true},
		{corev1.NodeReady, corev1.ConditionFalse, down + ". WARNING: no memory limits", true},
		{corev1.NodeReady, corev1.ConditionFalse, "container runtime is down", false},
		{corev1.NodeReady, corev1.ConditionTrue, down, false},
		{corev1.NodeReady, corev1.ConditionUnknown, down, false},
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, down, false},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionTrue, "", true},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionTrue, v1alpha1.ShutdownMessagePrefix + "boot", true},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionTrue, v1alpha1.ShutdownMessagePrefix + "a former boot", false},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionFalse, down, false},
		{corev1.NodeGracefulNodeShutdownInProgress, corev1.ConditionUnknown, down, false},
		{corev1.NodeDrainInProgress, corev1.ConditionTrue, "", false},
		{corev1.NodeDrained, corev1.ConditionTrue, "", false},
		{corev1.NodeMaintenancePlanned, corev1.ConditionTrue, "", false},
		{corev1.NodeMaintenanceInProgress, corev1.ConditionTrue, "", false},
	} {
		condition := corev1.NodeCondition{Type: test.condition, Status: test.status, Message: test.message}
		for name, conditions := range map[string][]corev1.NodeCondition{
			"alone":         {condition},
			"before others": {condition, {Type: "Other", Status: corev1.ConditionFalse}},
			"after others":  {{Type: "Other", Status: corev1.ConditionFalse}, condition},
		} {
			n := New(Options{}).Convert(kubetest.Node("a", "1", func(n *corev1.Node) { n.Status.Conditions = conditions }))
			if n.ShuttingDown != test.want {
				t.Errorf("%s=%s, %q, %s: shutting down is %v", test.condition, test.status, test.message, name, n.ShuttingDown)
			}
		}
	}
}

// A resource is missing if its quantity is expensive to compare. A kubelet can report it for
// its own node, and comparing or packing it would delay the facts of all nodes.
func TestAllocatableOutOfRange(t *testing.T) {
	s := New(Options{})
	s.Need(gate.Needs{Resources: []string{"a", "b", "c", "d"}})
	n := kubetest.Node("n", "u", func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{
			"a": resource.MustParse("8"), "b": resource.MustParse("1e99"), "c": resource.MustParse("1e201"), "d": resource.MustParse("-1e999999999"),
		}
	})
	for how, got := range map[string]map[string]resource.Quantity{"kept": s.Convert(n).Allocatable, "packed": s.Pack(n).Unpack().Allocatable} {
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%s: %v", how, names)
		}
	}
}

// Every field of nodeInfo that expressions may use can be stored: all strings except one
// that Kubernetes no longer sets.
func TestNodeInfoFields(t *testing.T) {
	var all corev1.NodeSystemInfo
	v := reflect.ValueOf(&all).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if v.Field(i).Kind() != reflect.String || name == "kubeProxyVersion" {
			continue
		}
		v.Field(i).SetString(name + "!")
		if _, err := expression.Compile("has(nodeInfo." + name + ")"); err != nil {
			t.Error(err)
		}
		if got := infoField(&all, name); got != name+"!" {
			t.Errorf("%s is kept as %q", name, got)
		}
	}
}
