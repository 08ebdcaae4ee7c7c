// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// thief has the token of a ServiceAccount.
type thief struct {
	*env
	config *rest.Config
	http   *http.Client
	api    client.Client
}

func newThief(e *env, namespace, serviceAccount string) *thief {
	e.Helper()
	config, err := e.cluster.ServiceAccount(e.Context(), namespace, serviceAccount)
	e.must(err)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	plain, err := rest.HTTPClientFor(config)
	e.must(err)
	api, err := client.New(config, client.Options{Scheme: e.admin.Scheme(), HTTPClient: plain})
	e.must(err)
	return &thief{env: e, config: config, http: plain, api: api}
}

func TestStolenToken(t *testing.T) { stolenToken(newEnv(t)) }

// stolenToken abuses every permission that RBAC grants to nodegate, with a stolen token,
// and tries every other request that an API server supports.
func stolenToken(e *env) {
	th := newThief(e, installation.Namespace, installation.ServiceAccount)
	rights, everybodys := th.rights(), newThief(e, daemonNamespace, "default").rights()
	var known []string
	for right := range th.attacks() {
		known = append(known, right)
	}
	known = append(known, harmless...)
	slices.Sort(known)
	if got := rights.but(everybodys); !slices.Equal(got, known) {
		e.Errorf("RBAC gives nodegate the rights\n  %s\nand this test knows of\n  %s", strings.Join(got, "\n  "), strings.Join(known, "\n  "))
	}
	for right, attack := range th.attacks() {
		e.Run(right, func(t *testing.T) {
			own := &env{T: t, cluster: e.cluster, admin: e.admin}
			attack(&thief{env: own, config: th.config, http: th.http, api: th.api})
		})
	}
	e.Run("everything else", func(t *testing.T) {
		own := &env{T: t, cluster: e.cluster, admin: e.admin}
		(&thief{env: own, config: th.config, http: th.http, api: th.api}).tryEverythingBut(rights)
	})
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
	"list nodereadinessrules.readiness.node.x-k8s.io",
	"list pods", "watch pods",
	"list resourceslices.resource.k8s.io", "watch resourceslices.resource.k8s.io",
	"get podtemplates nodegate-birth in nodegate-system",
	"create events in nodegate-system", "patch events in nodegate-system",
	"create events.events.k8s.io in nodegate-system", "patch events.events.k8s.io in nodegate-system",
	"create events.events.k8s.io in default",
	"create leases.coordination.k8s.io in nodegate-system",
	"get leases.coordination.k8s.io nodegate in nodegate-system", "update leases.coordination.k8s.io nodegate in nodegate-system",
}

// attacks are the abuses of permissions, by permission.
func (th *thief) attacks() map[string]func(*thief) {
	return map[string]func(*thief){
		"create nodes":                        (*thief).createNodes,
		"patch nodes":                         (*thief).patchNodes,
		"patch nodegates.nodegate.dev/status": (*thief).patchStatus,
		"create podtemplates in " + installation.Namespace:                (*thief).createParameters,
		"update podtemplates nodegate-birth in " + installation.Namespace: (*thief).updateParameter,
	}
}

func (th *thief) createNodes() {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made-up"}}
	th.refused("a Node that nobody registered", th.api.Create(th.Context(), node), "may create Nodes only in a dry run")
}

// patchTypes are all patch types that an API server supports.
var patchTypes = []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType}

// patchNodes tries every change that nodegate must not make, with every type of patch.
func (th *thief) patchNodes() {
	const those = "THOSE" // which the Node has
	taints := func(list ...string) string { return `{"spec":{"taints":[` + strings.Join(list, ",") + `]}}` }
	and := func(key, effect string) string {
		return taints(those, fmt.Sprintf(`{"key":%q,"effect":%q}`, key, effect))
	}
	metadata := func(name, value string) string { return fmt.Sprintf(`{"metadata":{%q:%s}}`, name, value) }
	for _, attack := range []struct{ what, change, want string }{
		{"adds a label", metadata("labels", `{"x":"y"}`), "may not change labels"},
		{"changes a label", metadata("labels", `{"zone":"b"}`), "may not change labels"},
		{"adds a finalizer", metadata("finalizers", `["example.com/never"]`), "may not change labels, owner references, finalizers"},
		{"adds an owner that is not there", metadata("ownerReferences", `[{"apiVersion":"v1","kind":"Node","name":"x","uid":"y"}]`), "may not change labels, owner references"},
		{"adds an annotation", metadata("annotations", `{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}`), "may change only annotations under gate.nodegate.dev/"},
		{"overrides a gate", metadata("annotations", `{"override.nodegate.dev/agent":"{}"}`), "may only remove annotations under override.nodegate.dev/"},
		{"cordons it", `{"spec":{"unschedulable":true}}`, "may not change a Node's spec except taints"},
		{"gives it a provider's ID", `{"spec":{"providerID":"aws:///x"}}`, "may not change a Node's spec except taints"},
		{"adds a foreign taint", and("example.com/other", "NoExecute"), "may add, change and remove only allowed taints"},
		{"removes all taints", taints(), "may add, change and remove only allowed taints"},
		{"evicts by a key that is for NoSchedule", and("startup.k8s.io/initializing", "NoExecute"), "may add, change and remove only allowed taints"},
		{"detaches the volumes of a node that works", and(v1alpha1.TaintOutOfService, "NoExecute"), "only to a Node whose Ready condition is Unknown"},
	} {
		for _, patchType := range patchTypes {
			node := th.node(attack.what + string(patchType))
			change := strings.ReplaceAll(attack.change, those, strings.Trim(string(asJSON(node.Spec.Taints)), "[]"))
			th.refused(attack.what+" by "+string(patchType), th.patch(node, patchType, change), attack.want)
			th.untouched(node)
		}
	}
	// What reaches a status takes another right, whatever the patch's type.
	for _, patchType := range patchTypes {
		node := th.node("status" + string(patchType))
		change := `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
		_ = th.patch(node, patchType, change) // is not for this resource, and is left out
		th.untouched(node)
	}
}

// node registers a Node without taints and records of gates.
func (th *thief) node(name string) *corev1.Node {
	th.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "stolen-", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"example.com/a": "b"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.com/pool", Effect: corev1.TaintEffectNoSchedule}}},
	}
	th.must(th.admin.Create(th.Context(), node))
	return node
}

// untouched verifies that a Node has not changed.
func (th *thief) untouched(node *corev1.Node) {
	th.Helper()
	var now corev1.Node
	th.must(th.admin.Get(th.Context(), client.ObjectKeyFromObject(node), &now))
	before, after := node.DeepCopy(), now.DeepCopy()
	for _, n := range []*corev1.Node{before, after} {
		n.ManagedFields, n.ResourceVersion = nil, "" // a patch of nothing may be a write
	}
	if b, a := asJSON(before), asJSON(after); !bytes.Equal(b, a) {
		th.Errorf("the Node was\n%s\nand is\n%s", b, a)
	}
}

func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // objects of the API can be written
	}
	return text
}

// patch makes a change, given as a merge patch, with a patch of the given type.
func (th *thief) patch(o client.Object, patchType types.PatchType, change string) error {
	th.Helper()
	body, options := []byte(change), []client.PatchOption{}
	switch patchType {
	case types.JSONPatchType:
		body = operations(th.decode(change))
	case types.ApplyYAMLPatchType:
		applied := th.decode(change)
		metadata, _ := applied["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
		}
		metadata["name"] = o.GetName()
		applied["apiVersion"], applied["kind"], applied["metadata"] = "v1", "Node", metadata
		body = asJSON(applied)
		options = append(options, client.FieldOwner("thief"), client.ForceOwnership)
	}
	return th.api.Patch(th.Context(), o.DeepCopyObject().(client.Object), client.RawPatch(patchType, body), options...)
}

func (th *thief) decode(text string) (o map[string]any) {
	th.Helper()
	th.must(json.Unmarshal([]byte(text), &o))
	return o
}

// operations converts a merge patch of one or two levels to a JSON patch.
func operations(change map[string]any) []byte {
	var all []map[string]any
	for field, value := range change {
		for name, inner := range value.(map[string]any) {
			path := "/" + field + "/" + name
			entries, is := inner.(map[string]any)
			if !is {
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
func (th *thief) patchStatus() {
	ng := newGate("status", keyA, byLabel("fit"))
	th.must(th.admin.Create(th.Context(), ng))
	th.Cleanup(func() { th.must(th.admin.Delete(context.WithoutCancel(th.Context()), ng)) })
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
			options.FieldManager, options.Force = "thief", new(bool)
			*options.Force = true
		}
		_ = th.api.Status().Patch(th.Context(), ng.DeepCopy(), client.RawPatch(patchType, body), options)
		var now v1alpha1.NodeGate
		th.must(th.admin.Get(th.Context(), client.ObjectKeyFromObject(ng), &now))
		if now.Generation != ng.Generation || len(now.Labels) > 0 || now.Spec.Taint != ng.Spec.Taint {
			th.Errorf("by %s the gate became %v with labels %v", patchType, now.Spec.Taint, now.Labels)
		}
	}
}

// parameter returns a birth parameter that adds a taint to every new node.
func (th *thief) parameter(name string, taint corev1.Taint) *corev1.PodTemplate {
	th.Helper()
	ng := newGate("stolen", keyA, byLabel("fit"))
	ng.Spec.Taint = v1alpha1.Taint{Key: taint.Key, Effect: taint.Effect}
	entry, err := admission.NewEntry(ng)
	th.must(err)
	p := admission.Parameter(installation.Namespace, v1alpha1.SourceCRD, []admission.Entry{entry})
	p.Name = name
	return p
}

func (th *thief) createParameters() {
	allowed := corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule}
	th.refused("a second parameter", th.api.Create(th.Context(), th.parameter("second", allowed)), "may write only the PodTemplate nodegate-birth")
	detaching := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute}
	th.must(th.deleteParameters(th.Context()))
	th.refused("a taint that is not allowed, at first", th.api.Create(th.Context(), th.parameter(v1alpha1.BirthParameter, detaching)), "may add only allowed taints")
}

func (th *thief) updateParameter() {
	allowed := th.parameter(v1alpha1.BirthParameter, corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule})
	th.must(client.IgnoreAlreadyExists(th.api.Create(th.Context(), allowed)))
	th.Cleanup(func() { th.must(th.deleteParameters(context.WithoutCancel(th.Context()))) })
	for _, taint := range []corev1.Taint{
		{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute},
		{Key: "example.com/pool", Effect: corev1.TaintEffectNoSchedule},
		{Key: "startup.k8s.io/initializing", Effect: corev1.TaintEffectNoExecute},
	} {
		th.refused("taint "+taint.ToString(), th.api.Update(th.Context(), th.parameter(v1alpha1.BirthParameter, taint)), "may add only allowed taints")
	}
}

// refused verifies that a guard has rejected a write with this message.
func (th *thief) refused(what string, err error, words string) {
	th.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'nodegate-") || !strings.Contains(err.Error(), words) {
		th.Errorf("%s: %v; want it refused by a guard, with %q", what, err, words)
	}
}
