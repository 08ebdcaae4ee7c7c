// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

var options = Options{Namespace: "here", ServiceAccount: "me", AllowedTaintKeys: []string{"example.com/a", "example.com/b"}}

// written returns the objects that Write writes, in their order.
func written(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, options); err != nil {
		t.Fatal(err)
	}
	var all []unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(&out, 4096)
	for {
		var object unstructured.Unstructured
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, object)
	}
}

// Objects come after those that they depend on, and have no fields that only the API server
// sets.
func TestWrite(t *testing.T) {
	at := map[string]int{}
	for i, object := range written(t) {
		kind := object.GetKind()
		if _, known := at[kind]; !known {
			at[kind] = i
		}
		if _, has := object.Object["status"]; has && kind != "CustomResourceDefinition" {
			t.Errorf("%s %s has a status", kind, object.GetName())
		}
		if !object.GetCreationTimestamp().Time.IsZero() || object.GetName() == "" || object.GetAPIVersion() == "" {
			t.Errorf("%s %s cannot be applied: %v", kind, object.GetName(), object.Object)
		}
		ofEvents := object.GetName() == eventsRoleName && object.GetNamespace() == "default" // the namespace of Events about nodes
		if namespace := object.GetNamespace(); namespace != "" && namespace != options.Namespace && !ofEvents {
			t.Errorf("%s %s is in namespace %s", kind, object.GetName(), namespace)
		}
	}
	for _, order := range [][2]string{
		{"CustomResourceDefinition", "Namespace"}, {"Namespace", "ServiceAccount"}, {"Namespace", "Role"},
		{"ClusterRole", "ClusterRoleBinding"}, {"Role", "RoleBinding"},
		{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"},
	} {
		first, ok := at[order[0]]
		if second, also := at[order[1]]; !ok || !also || first > second {
			t.Errorf("%s is object %d (exists: %t), after %s (exists: %t)", order[0], first, ok, order[1], also)
		}
	}
}

// Events about Nodes and NodeGates are in the namespace default, whatever nodegate's own is. The
// only permission for Events is to create them there.
func TestEventsAreOnlyCreatedInDefault(t *testing.T) {
	var granted []string
	for _, object := range written(t) {
		rules, _, err := unstructured.NestedSlice(object.Object, "rules")
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			resources, _, err := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(resources, "events") {
				granted = append(granted, fmt.Sprintf("%s/%s %v", object.GetNamespace(), object.GetName(), rule))
			}
		}
	}
	want := []string{"default/" + eventsRoleName + " map[apiGroups:[events.k8s.io] resources:[events] verbs:[create]]"}
	if !slices.Equal(granted, want) {
		t.Errorf("%q, want %q", granted, want)
	}
}

func TestWriteWithoutCRD(t *testing.T) {
	without := options
	without.WithoutCRD = true
	var with, out bytes.Buffer
	if err := errors.Join(Write(&with, options), Write(&out, without)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"kind: CustomResourceDefinition", "- nodegates", "nodegate-acknowledge", "- customresourcedefinitions"} {
		if !strings.Contains(with.String(), part) || strings.Contains(out.String(), part) {
			t.Errorf("%s is only needed with the CRD", part)
		}
	}
	if without.Username() != options.Username() || without.Validate() != nil {
		t.Error("the other objects differ")
	}
}

func TestWriteIsTheSameEveryTime(t *testing.T) {
	var first, second bytes.Buffer
	if err := errors.Join(Write(&first, options), Write(&second, options)); err != nil || first.String() != second.String() {
		t.Errorf("the outputs differ, or there is an error: %v", err)
	}
}

// nodegate's pods tolerate the taints of gates, each key once, the taint of control plane
// nodes, and the taints of nodes that are being set up. They leave a node soon after it
// becomes unreachable, and when it is drained.
func TestTolerations(t *testing.T) {
	seconds := new(int64(60))
	want := []corev1.Toleration{
		{Key: "a", Operator: "Exists"},
		{Key: "b/c", Operator: "Exists"},
		{Key: "node-role.kubernetes.io/control-plane", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/network-unavailable", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoSchedule"},
		{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds},
		{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: seconds},
	}
	if got := Tolerations([]string{"b/c", "a", "b/c:NoExecute"}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// nodegate has the permission to evict pods only with EvictPods.
func TestEvictPods(t *testing.T) {
	for _, asked := range []bool{false, true} {
		o := options
		o.EvictPods = asked
		var out bytes.Buffer
		if err := Write(&out, o); err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(out.String(), "pods/eviction"); has != asked {
			t.Errorf("permission to evict pods: %t, want %t", has, asked)
		}
	}
}

// nodegate may read objects of other kinds only with Observe, and never protected kinds.
func TestObserve(t *testing.T) {
	o := options
	o.Observe = []schema.GroupResource{{Group: "cilium.io", Resource: "ciliumnodes"}}
	var out bytes.Buffer
	if err := Write(&out, o); err != nil || !strings.Contains(out.String(), "- ciliumnodes\n") {
		t.Errorf("%v: ciliumnodes are not permitted", err)
	}
	for _, bad := range []schema.GroupResource{
		{Resource: "secrets"}, {Resource: "pods"}, {Group: "apps", Resource: "daemonsets"}, {}, {Group: "cilium.io", Resource: "*"}, {Resource: "pods/log"},
	} {
		o.Observe = []schema.GroupResource{bad}
		if err := Write(&out, o); err == nil {
			t.Errorf("%v is permitted", bad)
		}
		if err := o.Validate(); err == nil {
			t.Errorf("%v is valid", bad)
		}
	}
}

// Object signals must not read what nodegate may list for its own purposes: the administrator
// has not allowed authors of gates to learn its content.
func TestWhatNodegateListsIsProtected(t *testing.T) {
	o := options
	o.EvictPods, o.NodeConditions, o.GuardDaemonPods = true, true, true
	listed := sets.New[schema.GroupResource]()
	for _, birth := range []admission.Birth{admission.ByPolicy, admission.ByWebhook} {
		o.Birth = birth
		objects, err := Objects(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			listed = listed.Union(listable(object))
		}
	}
	protected := sets.New(schema.GroupResource{Resource: "secrets"})
	for r := range listed {
		if v1alpha1.CheckObserved(r) == nil {
			t.Errorf("nodegate may list %s, and object signals may read it: add it to ProtectedKinds", r)
		}
	}
	for _, p := range v1alpha1.ProtectedKinds() {
		if r := (schema.GroupResource{Group: p.Group, Resource: p.Resource}); !listed.Union(protected).Has(r) {
			t.Errorf("%s is protected, but nodegate may not list it: remove it from ProtectedKinds", r)
		}
	}
}

// listable returns the resources that a ClusterRole or a Role permits to list or watch.
// Permissions for single objects are left out: object signals list all.
func listable(o client.Object) sets.Set[schema.GroupResource] {
	var rules []rbacv1.PolicyRule
	switch role := o.(type) {
	case *rbacv1.ClusterRole:
		rules = role.Rules
	case *rbacv1.Role:
		rules = role.Rules
	}
	all := sets.New[schema.GroupResource]()
	for _, rule := range rules {
		if len(rule.ResourceNames) > 0 || !slices.Contains(rule.Verbs, "list") && !slices.Contains(rule.Verbs, "watch") && !slices.Contains(rule.Verbs, "*") {
			continue
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				all.Insert(schema.GroupResource{Group: group, Resource: resource})
			}
		}
	}
	return all
}

func TestBadOptionsWriteNothing(t *testing.T) {
	bad := Options{Namespace: "No", ServiceAccount: "", AllowedTaintKeys: []string{"a b"}}
	var out bytes.Buffer
	err := Write(&out, bad)
	if err == nil || out.Len() > 0 || bad.Validate() == nil {
		t.Fatalf("error %v, output of %d bytes", err, out.Len())
	}
	for _, want := range []string{`"No"`, `"a b"`, `service account ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not contain %s: %v", want, err)
		}
	}
}

// With the webhook instead of the birth policy, all kinds are known to API servers without
// MutatingAdmissionPolicy, and permissions are the same.
func TestWriteForWebhook(t *testing.T) {
	byWebhook := options
	byWebhook.Birth = admission.ByWebhook
	objects, err := Objects(byWebhook)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := Objects(options)
	if err != nil {
		t.Fatal(err)
	}
	kinds := func(objects []client.Object) (all []string) {
		for _, object := range objects {
			all = append(all, object.GetObjectKind().GroupVersionKind().Kind)
		}
		return all
	}
	for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
		if slices.Contains(kinds(objects), kind) || !slices.Contains(kinds(policy), kind) {
			t.Errorf("%s is only needed with the policy", kind)
		}
	}
	for _, kind := range []string{"MutatingWebhookConfiguration", "Service"} {
		if !slices.Contains(kinds(objects), kind) || slices.Contains(kinds(policy), kind) {
			t.Errorf("%s is only needed with the webhook", kind)
		}
	}
	if kinds(objects)[len(objects)-1] != "MutatingWebhookConfiguration" {
		t.Error("the webhook configuration is not the last object")
	}
	rightsOf := func(kind string, objects []client.Object) (all []string) {
		for _, object := range objects {
			if object.GetObjectKind().GroupVersionKind().Kind == kind {
				text, err := Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, string(text))
			}
		}
		return all
	}
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} {
		if len(rightsOf(kind, objects)) == 0 || !slices.Equal(rightsOf(kind, objects), rightsOf(kind, policy)) {
			t.Errorf("with the webhook, the %s differs: %v", kind, rightsOf(kind, objects))
		}
	}
}

// The webhook cannot prevent the creation of nodes.
func TestWebhookConfigurationIsHarmless(t *testing.T) {
	hook := admission.WebhookConfiguration("here").Webhooks[0]
	if *hook.FailurePolicy != "Ignore" || *hook.SideEffects != "None" || *hook.TimeoutSeconds != 5 || hook.ClientConfig.CABundle != nil {
		t.Errorf("%+v", hook)
	}
	if rule := hook.Rules[0]; len(hook.Rules) != 1 || !slices.Equal(rule.Resources, []string{"nodes"}) || len(rule.Operations) != 1 || rule.Operations[0] != "CREATE" {
		t.Errorf("%+v", hook.Rules)
	}
}
