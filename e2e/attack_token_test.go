// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
)

// attacker has the token of a ServiceAccount.
type attacker struct {
	*env
	config *rest.Config
	http   *http.Client
	api    client.Client
}

func newAttacker(e *env, namespace, serviceAccount string) *attacker {
	e.Helper()
	config, err := e.cluster.ServiceAccount(e.Context(), namespace, serviceAccount)
	e.must(err)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	plain, err := rest.HTTPClientFor(config)
	e.must(err)
	api, err := client.New(config, client.Options{Scheme: e.admin.Scheme(), HTTPClient: plain})
	e.must(err)
	return &attacker{env: e, config: config, http: plain, api: api}
}

func TestStolenToken(t *testing.T) { stolenToken(newEnv(t)) }

// stolenToken abuses every permission that RBAC grants to nodegate, with a stolen token,
// and tries every other request that an API server supports.
func stolenToken(e *env) {
	a := newAttacker(e, installation.Namespace, installation.ServiceAccount)
	granted, everyones := a.rights(), newAttacker(e, daemonNamespace, "default").rights()
	covered := slices.Concat(slices.Collect(maps.Keys(a.attacks())), harmless)
	slices.Sort(covered)
	if got := granted.minus(everyones); !slices.Equal(got, covered) {
		e.Errorf("RBAC grants nodegate the permissions\n  %s\nand this test covers\n  %s", strings.Join(got, "\n  "), strings.Join(covered, "\n  "))
	}
	for right, attack := range a.attacks() {
		e.Run(right, func(t *testing.T) { attack(a.in(t)) })
	}
	e.Run("everything else", func(t *testing.T) { a.in(t).tryEverythingBut(granted) })
}

// in returns the attacker for a subtest.
func (a *attacker) in(t *testing.T) *attacker {
	return &attacker{env: a.env.in(t), config: a.config, http: a.http, api: a.api}
}

// harmless are permissions that cannot change anything important, as described in
// docs/security/threat-model.md: reading what nodegate reads, creating false Events,
// reviewing its own permissions, and the Lease of the leader election. Reviews change
// nothing: they return the user of a token, to a client that has the token, and the
// permissions of a user, to a client that knows the user's name.
var harmless = []string{
	"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io",
	"get customresourcedefinitions.apiextensions.k8s.io nodegates.nodegate.dev",
	"get nodegates.nodegate.dev", "list nodegates.nodegate.dev", "watch nodegates.nodegate.dev",
	"get nodes", "list nodes", "watch nodes",
	"list csinodes.storage.k8s.io", "watch csinodes.storage.k8s.io",
	"list daemonsets.apps", "watch daemonsets.apps",
	"list nodereadinessrules.readiness.node.x-k8s.io", "watch nodereadinessrules.readiness.node.x-k8s.io",
	"list pods", "watch pods",
	"list resourceslices.resource.k8s.io", "watch resourceslices.resource.k8s.io",
	"list devicetaintrules.resource.k8s.io", "watch devicetaintrules.resource.k8s.io",
	"get podtemplates nodegate-birth in nodegate-system", "get podtemplates nodegate-tolerations in nodegate-system",
	"create events.events.k8s.io in default",
	"create leases.coordination.k8s.io in nodegate-system",
	"get leases.coordination.k8s.io nodegate in nodegate-system", "update leases.coordination.k8s.io nodegate in nodegate-system",
	"watch leases.coordination.k8s.io nodegate in nodegate-system",
}

// attacks are the abuses of permissions, by permission.
func (a *attacker) attacks() map[string]func(*attacker) {
	return map[string]func(*attacker){
		"create nodes":                        (*attacker).createNodes,
		"patch nodes":                         (*attacker).patchNodes,
		"patch nodegates.nodegate.dev/status": (*attacker).patchStatus,
		"create podtemplates in " + installation.Namespace:                      (*attacker).createParameters,
		"update podtemplates nodegate-birth in " + installation.Namespace:       (*attacker).updateParameter,
		"update podtemplates nodegate-tolerations in " + installation.Namespace: (*attacker).updateTolerations,
	}
}

func (a *attacker) createNodes() {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made-up"}}
	a.refused("a Node that no kubelet registered", a.api.Create(a.Context(), node), "may create Nodes only in a dry run")
}

// patchTypes are all patch types that an API server supports.
var patchTypes = []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType}

// patchNodes tries every change that nodegate must not make, with every type of patch.
func (a *attacker) patchNodes() {
	const existing = "EXISTING" // is replaced with the Node's taints
	taints := func(list ...string) string { return `{"spec":{"taints":[` + strings.Join(list, ",") + `]}}` }
	add := func(key, effect string) string {
		return taints(existing, fmt.Sprintf(`{"key":%q,"effect":%q}`, key, effect))
	}
	metadata := func(name, value string) string { return fmt.Sprintf(`{"metadata":{%q:%s}}`, name, value) }
	for _, attack := range []struct{ what, change, want string }{
		{"adds a label", metadata("labels", `{"x":"y"}`), "may not change labels"},
		{"changes a label", metadata("labels", `{"zone":"b"}`), "may not change labels"},
		{"adds a finalizer", metadata("finalizers", `["example.com/never"]`), "may not change labels, owner references, finalizers"},
		{"adds an owner that does not exist", metadata("ownerReferences", `[{"apiVersion":"v1","kind":"Node","name":"x","uid":"y"}]`), "may not change labels, owner references"},
		{"adds an annotation", metadata("annotations", `{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}`), "may change only annotations under gate.nodegate.dev/"},
		{"overrides a gate", metadata("annotations", `{"override.nodegate.dev/agent":"{}"}`), "may only remove annotations under override.nodegate.dev/"},
		{"cordons it", `{"spec":{"unschedulable":true}}`, "may not change a Node's spec except taints"},
		{"sets a provider ID", `{"spec":{"providerID":"aws:///x"}}`, "may not change a Node's spec except taints"},
		{"adds a foreign taint", add("example.com/other", "NoExecute"), "may add, change and remove only allowed taints"},
		{"removes all taints", taints(), "may add, change and remove only allowed taints"},
		{"evicts with a key that is allowed only with NoSchedule", add("startup.k8s.io/initializing", "NoExecute"), "may add, change and remove only allowed taints"},
		{"detaches the volumes of a node that is not unreachable", add(v1alpha1.TaintOutOfService, "NoExecute"), "only to a Node whose Ready condition is Unknown"},
	} {
		for _, patchType := range patchTypes {
			node := a.node(attack.what + string(patchType))
			change := strings.ReplaceAll(attack.change, existing, strings.Trim(string(asJSON(node.Spec.Taints)), "[]"))
			a.refused(attack.what+" by "+string(patchType), a.patch(node, patchType, change), attack.want)
			a.untouched(node)
		}
	}
	// Changing the status requires another permission, with every type of patch.
	for _, patchType := range patchTypes {
		node := a.node("status" + string(patchType))
		change := `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
		_ = a.patch(node, patchType, change) // this resource ignores the status
		a.untouched(node)
	}
}

// node creates a Node without taints and records of gates.
func (a *attacker) node(name string) *corev1.Node {
	a.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "stolen-", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"example.com/a": "b"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.com/pool", Effect: corev1.TaintEffectNoSchedule}}},
	}
	a.must(a.admin.Create(a.Context(), node))
	return node
}

// untouched checks that a Node has not changed.
func (a *attacker) untouched(node *corev1.Node) {
	a.Helper()
	var now corev1.Node
	a.must(a.admin.Get(a.Context(), client.ObjectKeyFromObject(node), &now))
	before, after := node.DeepCopy(), now.DeepCopy()
	for _, n := range []*corev1.Node{before, after} {
		n.ManagedFields, n.ResourceVersion = nil, "" // a patch without changes may be a write
	}
	if was, is := asJSON(before), asJSON(after); !bytes.Equal(was, is) {
		a.Errorf("the Node was\n%s\nand is\n%s", was, is)
	}
}

func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // API objects always marshal
	}
	return text
}

// patch makes a change, given as a merge patch, with a patch of the given type.
func (a *attacker) patch(o client.Object, patchType types.PatchType, change string) error {
	a.Helper()
	body, options := []byte(change), []client.PatchOption{}
	switch patchType {
	case types.JSONPatchType:
		body = operations(a.decode(change))
	case types.ApplyYAMLPatchType:
		applied := a.decode(change)
		metadata, _ := applied["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["name"] = o.GetName()
		applied["apiVersion"], applied["kind"], applied["metadata"] = "v1", "Node", metadata
		body = asJSON(applied)
		options = append(options, client.FieldOwner("attacker"), client.ForceOwnership)
	}
	return a.api.Patch(a.Context(), o.DeepCopyObject().(client.Object), client.RawPatch(patchType, body), options...)
}

// patchNodeStatus makes a change of a Node by a strategic merge patch of nodes/status.
func (a *attacker) patchNodeStatus(node *corev1.Node, change, manager string) error {
	a.Helper()
	body := client.RawPatch(types.StrategicMergePatchType, []byte(change))
	return a.api.Status().Patch(a.Context(), node.DeepCopy(), body, client.FieldOwner(manager))
}

func (a *attacker) decode(text string) (o map[string]any) {
	a.Helper()
	a.must(json.Unmarshal([]byte(text), &o))
	return o
}

// operations converts a merge patch of one or two levels to a JSON patch.
func operations(change map[string]any) []byte {
	var all []map[string]any
	for field, value := range change {
		for name, inner := range value.(map[string]any) {
			path := "/" + field + "/" + name
			entries, ok := inner.(map[string]any)
			if !ok {
				all = append(all, map[string]any{"op": "add", "path": path, "value": inner})
			}
			for key, entry := range entries {
				all = append(all, map[string]any{"op": "add", "path": path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key), "value": entry})
			}
		}
	}
	return asJSON(all)
}

// patchStatus tries to change a gate's spec through its status subresource.
func (a *attacker) patchStatus() {
	ng := newGate("status", keyA, byLabel("fit"))
	a.must(a.admin.Create(a.Context(), ng))
	a.Cleanup(func() { a.must(a.admin.Delete(context.WithoutCancel(a.Context()), ng)) })
	for _, patchType := range []types.PatchType{types.JSONPatchType, types.MergePatchType, types.ApplyYAMLPatchType} {
		change := `{"spec":{"taint":{"key":"test.nodegate.dev/b","effect":"NoExecute"}},"metadata":{"labels":{"x":"y"}}}`
		body := []byte(change)
		switch patchType {
		case types.JSONPatchType:
			body = []byte(`[{"op":"replace","path":"/spec/taint","value":{"key":"test.nodegate.dev/b","effect":"NoExecute"}},{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`)
		case types.ApplyYAMLPatchType:
			body = []byte(`{"apiVersion":"nodegate.dev/v1alpha1","kind":"NodeGate","metadata":{"name":"status","labels":{"x":"y"}},"spec":{"taint":{"key":"test.nodegate.dev/b","effect":"NoExecute"}}}`)
		}
		options := &client.SubResourcePatchOptions{}
		if patchType == types.ApplyYAMLPatchType {
			options.FieldManager, options.Force = "attacker", new(true)
		}
		_ = a.api.Status().Patch(a.Context(), ng.DeepCopy(), client.RawPatch(patchType, body), options)
		var now v1alpha1.NodeGate
		a.must(a.admin.Get(a.Context(), client.ObjectKeyFromObject(ng), &now))
		if now.Generation != ng.Generation || len(now.Labels) > 0 || now.Spec.Taint != ng.Spec.Taint {
			a.Errorf("patching by %s changed the gate's taint to %v and its labels to %v", patchType, now.Spec.Taint, now.Labels)
		}
	}
}

// parameter returns a birth parameter that adds a taint to every new node.
func (a *attacker) parameter(name string, taint corev1.Taint) *corev1.PodTemplate {
	a.Helper()
	ng := newGate("stolen", keyA, byLabel("fit"))
	ng.Spec.Taint = v1alpha1.Taint{Key: taint.Key, Effect: taint.Effect}
	entry, err := admission.NewEntry(ng)
	a.must(err)
	p := admission.Parameter(installation.Namespace, v1alpha1.SourceCRD, []admission.Entry{entry})
	p.Name = name
	return p
}

func (a *attacker) createParameters() {
	allowed := corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule}
	a.refused("a second parameter", a.api.Create(a.Context(), a.parameter("second", allowed)), "may write only the PodTemplates nodegate-birth")
	detaching := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}
	a.must(a.deleteParameters(a.Context()))
	a.refused("a taint that is not allowed, in a new parameter", a.api.Create(a.Context(), a.parameter(v1alpha1.BirthParameter, detaching)), "may add only allowed taints")
}

func (a *attacker) updateParameter() {
	allowed := a.parameter(v1alpha1.BirthParameter, corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule})
	a.must(client.IgnoreAlreadyExists(a.api.Create(a.Context(), allowed)))
	a.Cleanup(func() { a.must(a.deleteParameters(context.WithoutCancel(a.Context()))) })
	for _, taint := range []corev1.Taint{
		{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute},
		{Key: "example.com/pool", Effect: corev1.TaintEffectNoSchedule},
		{Key: "startup.k8s.io/initializing", Effect: corev1.TaintEffectNoExecute},
	} {
		a.refused("taint "+taint.ToString(), a.api.Update(a.Context(), a.parameter(v1alpha1.BirthParameter, taint)), "may add only allowed taints")
	}
}

// updateTolerations tries to give DaemonSets tolerations of taints that no gate may have, or
// of all taints.
func (a *attacker) updateTolerations() {
	allowed := a.parameter(v1alpha1.TolerationsParameter, corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule})
	a.must(client.IgnoreAlreadyExists(a.api.Create(a.Context(), allowed)))
	a.Cleanup(func() { a.must(a.deleteParameters(context.WithoutCancel(a.Context()))) })
	for _, t := range []corev1.Toleration{
		{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute},
		{Key: "example.com/pool", Effect: corev1.TaintEffectNoSchedule},
		{Key: keyA},
		{Operator: corev1.TolerationOpExists},
	} {
		forged := allowed.DeepCopy()
		forged.ResourceVersion = ""
		forged.Template.Spec.Tolerations = []corev1.Toleration{t}
		a.refused(fmt.Sprintf("toleration %+v", t), a.api.Update(a.Context(), forged), "tolerations of them to DaemonSets")
	}
}

// refused checks that a guard rejected a write with a message that contains the text.
func (a *attacker) refused(what string, err error, text string) {
	a.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'nodegate-") || !strings.Contains(err.Error(), text) {
		a.Errorf("%s: %v, want a guard's rejection that contains %q", what, err, text)
	}
}
