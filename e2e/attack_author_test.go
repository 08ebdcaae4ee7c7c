// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
)

// An author of gates, who may only create and update gates, learns nothing about objects that
// nodegate may read for other signals, and cannot make a gate depend on its own taint without
// any wait. The API server rejects such gates. nodegate does not accept those that were stored
// before the API server had the rule.
func TestAuthorReadsNoProtectedKinds(t *testing.T) {
	const password = "correct-horse"
	e := newEnv(t)
	e.startController(0)
	author := e.author()
	k := e.registered("n1")[0]
	k.bind("db", time.Now(), labelled("db"), func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: password}}
	})
	gates := func() map[string]*v1alpha1.NodeGate {
		pod := newClosingGate("pod", keyA, v1alpha1.SignalSource{Object: &v1alpha1.ObjectSignal{
			Version: "v1", Kind: "Pod", Namespace: daemonNamespace, MatchLabels: map[string]string{"app": "db"},
			NodeBy: v1alpha1.NodeByField, NodeField: "spec.nodeName", Expression: `{"a": true}[object.spec.containers[0].env[0].value]`,
		}})
		pod.Spec.Mode = v1alpha1.ModeDryRun
		node := newClosingGate("node", keyB, v1alpha1.SignalSource{Object: &v1alpha1.ObjectSignal{
			Version: "v1", Kind: "Node", Expression: `!object.spec.?taints.orValue([]).exists(t, t.key == "` + keyB + `")`,
		}})
		return map[string]*v1alpha1.NodeGate{"Pod": pod, "Node": node}
	}
	for kind, ng := range gates() {
		if err := author.Create(t.Context(), ng); err == nil || !strings.Contains(err.Error(), "closeWhen[0].object.kind") {
			t.Errorf("a gate over kind %s is created: %v", kind, err)
		}
	}
	e.withoutObjectRules()
	for kind, ng := range gates() {
		e.eventually("the API server stores the gate", func() error { return author.Create(t.Context(), ng) })
		e.eventually("the gate over kind "+kind+" is not accepted", func() error {
			status, err := json.Marshal(e.readGate(ng.Name).Status)
			e.must(err)
			if strings.Contains(string(status), password) {
				t.Fatalf("the status reveals the password: %s", status)
			}
			return e.condition(ng.Name, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
		})
		e.must(e.messageContains(ng.Name, v1alpha1.ConditionAccepted, "kind must not be "+kind))
	}
	e.settled()
	k.wrote(0)
}

// author returns a client of a user who may create and update gates, and nothing else.
func (e *env) author() client.Client {
	e.Helper()
	const name = "author-of-gates"
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{v1alpha1.Resource.Resource}, Verbs: []string{"create", "update"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	for _, o := range []client.Object{role, binding} {
		e.must(e.admin.Create(e.Context(), o))
		e.Cleanup(func() { e.must(e.admin.Delete(context.Background(), o)) }) // the test's own context has ended
	}
	author, err := client.New(e.cluster.User(name), client.Options{Scheme: e.admin.Scheme()})
	e.must(err)
	return author
}

// withoutObjectRules removes the rules about whole object signals of closeWhen from the CRD,
// until the test ends.
func (e *env) withoutObjectRules() {
	e.Helper()
	definition, err := crd.Definition()
	e.must(err)
	spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	rules, err := json.Marshal(spec.Properties["closeWhen"].Items.Schema.Properties["object"].XValidations)
	e.must(err)
	set := func(rules string) {
		const at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/closeWhen/items/properties/object/x-kubernetes-validations"
		e.must(e.tryPatch("apiextensions.k8s.io/v1", "CustomResourceDefinition", v1alpha1.Resource.Resource+"."+v1alpha1.GroupName,
			types.JSONPatchType, `[{"op":"add","path":"`+at+`","value":`+rules+`}]`))
	}
	e.Cleanup(func() { set(string(rules)) })
	set("[]")
}
