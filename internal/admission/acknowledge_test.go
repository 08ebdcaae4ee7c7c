// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
)

// Parts of the guard's message about each danger.
const (
	evictionVerb = `requires the verb "acknowledge-eviction" on nodegates.nodegate.dev`
	detachVerb   = `requires the verb "acknowledge-detach" on nodegates.nodegate.dev`
)

// Specs of gates. The last one has both dangers.
const (
	harmless  = `{nodeSelector: {}, taint: {key: test.nodegate.dev/a, effect: NoSchedule}, openWhen: [{name: l, label: {key: l}}]}`
	evicting  = `{nodeSelector: {}, taint: {key: test.nodegate.dev/a, effect: NoExecute}, openWhen: [{name: l, label: {key: l}}], acknowledge: [PodEviction]}`
	reclosing = `{nodeSelector: {}, taint: {key: test.nodegate.dev/a, effect: NoSchedule}, recloseTaint: {key: test.nodegate.dev/b, effect: NoExecute}, openWhen: [{name: l, label: {key: l}}], acknowledge: [PodEviction]}`
	bypassing = `{nodeSelector: {}, taint: {key: test.nodegate.dev/a, effect: NoSchedule}, openWhen: [{name: l, label: {key: l}}], bypassedPods: Evict, acknowledge: [PodEviction]}`
	unnamed   = `{nodeSelector: {}, taint: {key: test.nodegate.dev/a, effect: NoSchedule}, openWhen: [{name: l, label: {key: l}}], bypassedPods: Evict}`
	prepared  = `{nodeSelector: {}, taint: {key: test.nodegate.dev/a, effect: NoSchedule}, openWhen: [{name: l, label: {key: l}}], acknowledge: [PodEviction]}`
	detaching = `{nodeSelector: {}, taint: {key: node.kubernetes.io/out-of-service, effect: NoSchedule}, closeWhen: [{name: l, label: {key: l}}], acknowledge: [VolumeDetach]}`
	both      = `{nodeSelector: {}, taint: {key: node.kubernetes.io/out-of-service, effect: NoExecute}, closeWhen: [{name: l, label: {key: l}}], acknowledge: [PodEviction, VolumeDetach]}`
)

// authors are clients of users who may write NodeGates, each with further verbs on them.
type authors map[string]dynamic.ResourceInterface

func newAuthors(t *testing.T, in *installation) authors {
	t.Helper()
	crdtest.Install(t, in.Admin())
	nodegates := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates"}, Verbs: verbs}
	}
	named := nodegates("acknowledge-eviction", "acknowledge-detach")
	named.ResourceNames = []string{"mine"}
	all := authors{"admin": gatesAs(t, in.Admin())}
	for name, rule := range map[string]rbacv1.PolicyRule{
		"plain":     nodegates("get"),
		"overrider": nodegates("override"),
		"evictor":   nodegates("acknowledge-eviction"),
		"detacher":  nodegates("acknowledge-detach"),
		"trusted":   nodegates("acknowledge-eviction", "acknowledge-detach"),
		"owner":     named,
		"gitops":    nodegates("*"),
	} {
		newUser(t, in, "author-"+name, rule, nodegates("get", "create", "update", "patch", "delete"),
			rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates/status"}, Verbs: []string{"*"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}})
		all[name] = gatesAs(t, in.User("author-"+name))
	}
	// The guard comes into force for a new kind a moment later.
	eventually(t, func() error {
		_, err := all["plain"].Create(t.Context(), gateOf(t, "early", evicting), metav1.CreateOptions{DryRun: dryRun})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the guard is not in force (%w)", err)
		}
		return nil
	})
	return all
}

func gatesAs(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	gates, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return gates.Resource(v1alpha1.Resource)
}

// gateOf returns a gate with a spec written as YAML.
func gateOf(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatal(err)
	}
	gate := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	gate.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeGate"))
	gate.SetName(name)
	return gate
}

// existing applies a gate as the administrator, with the authors' field manager, and
// deletes it when the test ends.
func (a authors) existing(t *testing.T, gate *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	applied, err := a["admin"].Apply(t.Context(), gate.GetName(), gate, metav1.ApplyOptions{FieldManager: "author"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a["admin"].Delete(context.Background(), gate.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return applied
}

// TestAcknowledgeOnCreation tests that only an author with the verb for a danger can
// acknowledge it, by POST and by server-side apply.
func TestAcknowledgeOnCreation(t *testing.T) {
	in := install(t)
	by := newAuthors(t, in)
	tests := map[string]struct {
		author, name, spec string
		want               string
	}{
		"no danger":                   {"plain", "mine", harmless, ""},
		"eviction":                    {"plain", "mine", evicting, evictionVerb},
		"eviction on reclosing":       {"plain", "mine", reclosing, evictionVerb},
		"eviction of bypassed pods":   {"plain", "mine", bypassing, evictionVerb},
		"the same by its verb":        {"evictor", "mine", bypassing, ""},
		"eviction, not used yet":      {"plain", "mine", prepared, evictionVerb},
		"detach":                      {"plain", "mine", detaching, detachVerb},
		"another verb":                {"overrider", "mine", evicting, evictionVerb},
		"eviction by its verb":        {"evictor", "mine", evicting, ""},
		"detach by eviction's verb":   {"evictor", "mine", detaching, detachVerb},
		"both by eviction's verb":     {"evictor", "mine", both, detachVerb},
		"detach by its verb":          {"detacher", "mine", detaching, ""},
		"both by detach's verb":       {"detacher", "mine", both, evictionVerb},
		"both by both verbs":          {"trusted", "mine", both, ""},
		"by name":                     {"owner", "mine", both, ""},
		"by another name":             {"owner", "yours", both, evictionVerb},
		"every verb":                  {"gitops", "mine", both, ""},
		"a cluster administrator":     {"admin", "mine", both, ""},
		"message names the gate":      {"plain", "mine", evicting, "NodeGate mine acknowledges PodEviction"},
		"message: what to do":         {"plain", "mine", evicting, "ask an administrator for the verb, or remove PodEviction from acknowledge and use effect NoSchedule"},
		"message: what to do, detach": {"plain", "mine", detaching, "ask an administrator for the verb, or remove VolumeDetach from acknowledge and use another taint key"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gate := gateOf(t, test.name, test.spec)
			_, err := by[test.author].Create(t.Context(), gate, metav1.CreateOptions{DryRun: dryRun})
			checkDenied(t, err, test.want)
			_, err = by[test.author].Apply(t.Context(), test.name, gate, metav1.ApplyOptions{FieldManager: "author", DryRun: dryRun})
			checkDenied(t, err, test.want)
		})
	}
	_, err := by["trusted"].Create(t.Context(), gateOf(t, "mine", unnamed), metav1.CreateOptions{DryRun: dryRun})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "bypassedPods Evict evicts running pods; add PodEviction to acknowledge, or use Report") {
		t.Errorf("eviction of bypassed pods without the acknowledgement: %v", err)
	}
	generated := gateOf(t, "", evicting)
	generated.SetGenerateName("mine")
	_, err = by["owner"].Create(t.Context(), generated, metav1.CreateOptions{DryRun: dryRun})
	checkDenied(t, err, evictionVerb)
	_, err = by["evictor"].Create(t.Context(), generated, metav1.CreateOptions{DryRun: dryRun})
	checkDenied(t, err, "")
}

// TestAcknowledgeOnUpdate tests that every change of the spec of a gate with an
// acknowledgement requires the verb. Removing the acknowledgement and changing metadata
// do not.
func TestAcknowledgeOnUpdate(t *testing.T) {
	in := install(t)
	by := newAuthors(t, in)
	const (
		widened  = `{"spec":{"nodeSelector":{"matchLabels":{"a":"b"}}}}`
		inverted = `{"spec":{"openWhen":[{"name":"never","label":{"key":"never"}}]}}`
		closes   = `{"spec":{"existingNodes":"Close","budget":{"maxReclosed":"100%"}}}`
		enforced = `{"spec":{"mode":"DryRun"}}`
		value    = `{"spec":{"taint":{"value":"x"}}}`
		another  = `{"spec":{"taint":{"key":"test.nodegate.dev/b"}}}`
		disarmed = `{"spec":{"taint":{"effect":"NoSchedule"},"acknowledge":null}}`
		kept     = `{"spec":{"taint":{"effect":"NoSchedule"}}}`
		armed    = `{"spec":{"acknowledge":["PodEviction"]}}`
		same     = `{"spec":{"acknowledge":["PodEviction"],"mode":"Enforce"}}`
		labelled = `{"metadata":{"labels":{"a":"b"},"annotations":{"a":"b"}}}`
		final    = `{"metadata":{"finalizers":["example.com/cleanup"]}}`
		owned    = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}]}}`
		tricky   = `{"metadata":{"labels":{"a":"b"}},"spec":{"mode":"Paused"}}`
		halved   = `{"spec":{"acknowledge":["VolumeDetach"],"taint":{"effect":"NoSchedule"}}}`
		moved    = `{"spec":{"acknowledge":["PodEviction"],"taint":{"key":"test.nodegate.dev/a"}}}`
	)
	tests := map[string]struct {
		author, from, patch string
		want                string
	}{
		"other nodes":                      {"plain", evicting, widened, evictionVerb},
		"other signals":                    {"plain", evicting, inverted, evictionVerb},
		"existing nodes":                   {"plain", evicting, closes, evictionVerb},
		"mode":                             {"plain", evicting, enforced, evictionVerb},
		"value":                            {"plain", evicting, value, evictionVerb},
		"key":                              {"plain", evicting, another, evictionVerb},
		"only the effect":                  {"plain", evicting, kept, evictionVerb},
		"mode and a label":                 {"plain", evicting, tricky, evictionVerb},
		"other nodes to detach":            {"plain", detaching, widened, detachVerb},
		"danger removed":                   {"plain", evicting, disarmed, ""},
		"labels and annotations":           {"plain", evicting, labelled, ""},
		"finalizers":                       {"plain", evicting, final, ""},
		"owners":                           {"plain", evicting, owned, ""},
		"nothing":                          {"plain", evicting, same, ""},
		"a new danger":                     {"plain", harmless, armed, evictionVerb},
		"a harmless gate":                  {"plain", harmless, widened, ""},
		"other nodes, with the verb":       {"evictor", evicting, widened, ""},
		"a new danger, with the verb":      {"evictor", harmless, armed, ""},
		"other nodes, with another verb":   {"detacher", evicting, widened, evictionVerb},
		"eviction removed":                 {"detacher", both, halved, ""},
		"detach removed":                   {"evictor", both, moved, ""},
		"eviction removed, without a verb": {"evictor", both, halved, detachVerb},
		"by name":                          {"owner", evicting, widened, ""},
		"every verb":                       {"gitops", both, widened, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := by.existing(t, gateOf(t, "mine", test.from))
			gates, ctx := by[test.author], t.Context()
			_, err := gates.Patch(ctx, "mine", types.MergePatchType, []byte(test.patch), dryRunPatch)
			checkDenied(t, err, test.want)
			after := patched(t, gateOf(t, "mine", test.from), test.patch)
			_, err = gates.Apply(ctx, "mine", after, metav1.ApplyOptions{FieldManager: "author", DryRun: dryRun})
			checkDenied(t, err, test.want)
			replace, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": after.Object["spec"]}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = gates.Patch(ctx, "mine", types.JSONPatchType, replace, dryRunPatch)
			checkDenied(t, err, test.want)
			after.SetResourceVersion(before.GetResourceVersion())
			_, err = gates.Update(ctx, after, metav1.UpdateOptions{DryRun: dryRun})
			checkDenied(t, err, test.want)
		})
	}
}

// patched returns the gate with a merge patch applied.
func patched(t *testing.T, gate *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	before, err := json.Marshal(gate)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jsonpatch.MergePatch(before, []byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	after := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, after); err != nil {
		t.Fatal(err)
	}
	return after
}

// TestDeletionAndStatusNeedNoVerb tests that deleting a gate with an acknowledgement,
// and writing its status, require no verb.
func TestDeletionAndStatusNeedNoVerb(t *testing.T) {
	in := install(t)
	by := newAuthors(t, in)
	by.existing(t, gateOf(t, "mine", evicting))
	status := []byte(`{"status":{"observedGeneration":1},"spec":{"mode":"Paused"}}`)
	got, err := by["plain"].Patch(t.Context(), "mine", types.MergePatchType, status, dryRunPatch, "status")
	checkDenied(t, err, "")
	if mode, _, _ := unstructured.NestedString(got.Object, "spec", "mode"); mode != "Enforce" {
		t.Errorf("a write to the status set the gate's mode to %q", mode)
	}
	checkDenied(t, by["plain"].Delete(t.Context(), "mine", metav1.DeleteOptions{DryRun: dryRun}), "")
}
