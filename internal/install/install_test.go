// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/admission"
)

var options = Options{Namespace: "here", ServiceAccount: "me", AllowedTaintKeys: []string{"example.com/a", "example.com/b"}}

// written returns the objects that Write writes, in order.
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

// What others need comes before them, and nothing is in it that only the API
// server sets, or that would fight with it.
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
			t.Errorf("%s %s is not ready to be applied: %v", kind, object.GetName(), object.Object)
		}
		ofEvents := object.GetName() == eventsRoleName && object.GetNamespace() == "default" // where nodes have them
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
			t.Errorf("%s comes as number %d (there: %t), after %s (there: %t)", order[0], first, ok, order[1], also)
		}
	}
}

func TestWriteWithoutCRD(t *testing.T) {
	without := options
	without.WithoutCRD = true
	var with, out bytes.Buffer
	if err := errors.Join(Write(&with, options), Write(&out, without)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"kind: CustomResourceDefinition", "- nodegates", "- customresourcedefinitions"} {
		if !strings.Contains(with.String(), part) || strings.Contains(out.String(), part) {
			t.Errorf("%s belongs to the CRD, and to nothing else", part)
		}
	}
	if without.Username() != options.Username() || without.Validate() != nil {
		t.Error("the rest is another installation")
	}
}

func TestWriteIsTheSameEveryTime(t *testing.T) {
	var first, second bytes.Buffer
	if err := errors.Join(Write(&first, options), Write(&second, options)); err != nil || first.String() != second.String() {
		t.Errorf("two outputs differ, or there is an error: %v", err)
	}
}

// Nodegate's pods tolerate what gates put somewhere, each key once, and what a node
// has while it is being set up; they leave a node that is silent before long, and
// one that is drained.
func TestTolerations(t *testing.T) {
	seconds := ptr.To[int64](60)
	want := []corev1.Toleration{
		{Key: "a", Operator: "Exists"},
		{Key: "b/c", Operator: "Exists"},
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

// Nodegate may evict pods only where that was asked for.
func TestEvictingIsAskedFor(t *testing.T) {
	for _, asked := range []bool{false, true} {
		o := options
		o.EvictPods = asked
		var out bytes.Buffer
		if err := Write(&out, o); err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(out.String(), "pods/eviction"); has != asked {
			t.Errorf("the right to evict pods is there: %t, want %t", has, asked)
		}
	}
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
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

// The webhook stands in for the birth policy: nothing of a kind that an API
// server without it does not know, and no right but to its own two objects.
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
			t.Errorf("%s belongs to the policy alone", kind)
		}
	}
	for _, kind := range []string{"MutatingWebhookConfiguration", "Secret", "Service"} {
		if !slices.Contains(kinds(objects), kind) || slices.Contains(kinds(policy), kind) {
			t.Errorf("%s belongs to the webhook alone", kind)
		}
	}
	if kinds(objects)[len(objects)-1] != "MutatingWebhookConfiguration" {
		t.Error("the API server calls the webhook before the rest is there")
	}
	for _, rule := range append(WebhookClusterRules(), WebhookNamespaceRules()...) {
		if len(rule.ResourceNames) != 1 || len(rule.Resources) != 1 || slices.ContainsFunc(rule.Verbs, func(verb string) bool {
			return !slices.Contains([]string{"get", "update", "patch"}, verb)
		}) {
			t.Errorf("too much is allowed: %v", rule)
		}
	}
}

// What keeps a webhook from standing in a node's way.
func TestWebhookConfigurationIsHarmless(t *testing.T) {
	hook := admission.WebhookConfiguration("here").Webhooks[0]
	if *hook.FailurePolicy != "Ignore" || *hook.SideEffects != "None" || *hook.TimeoutSeconds != 5 || hook.ClientConfig.CABundle != nil {
		t.Errorf("%+v", hook)
	}
	if rule := hook.Rules[0]; len(hook.Rules) != 1 || !slices.Equal(rule.Resources, []string{"nodes"}) || len(rule.Operations) != 1 || rule.Operations[0] != "CREATE" {
		t.Errorf("%+v", hook.Rules)
	}
}
