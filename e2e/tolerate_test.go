// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// byLabelled returns a signal that waits for the DaemonSets with the label of the default
// gate.
func byLabelled() v1alpha1.SignalSource {
	return v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{
		Namespaces: []string{daemonNamespace}, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"nodegate.dev/required": "true"}},
	}}
}

// applyDaemon applies a DaemonSet as a field manager. tolerations are in JSON, or "".
func (e *env) applyDaemon(manager, name, labels, tolerations string) *appsv1.DaemonSet {
	e.Helper()
	if tolerations != "" {
		tolerations = `,"tolerations":` + tolerations
	}
	body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":%[1]q,"namespace":%[2]q,"labels":{%[3]s}},
		"spec":{"selector":{"matchLabels":{"app":%[1]q}},"template":{"metadata":{"labels":{"app":%[1]q}},
		"spec":{"containers":[{"name":"c","image":"daemon"}]%[4]s}}}}`, name, daemonNamespace, labels, tolerations)
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: name}}
	e.must(e.admin.Patch(e.Context(), ds, client.RawPatch(types.ApplyPatchType, []byte(body)), client.FieldOwner(manager)))
	return ds
}

// tolerationsOf returns the tolerations of a DaemonSet, and the field managers that own them.
func (e *env) tolerationsOf(name string) (keys, owners []string) {
	e.Helper()
	var ds appsv1.DaemonSet
	e.must(e.admin.Get(e.Context(), client.ObjectKey{Namespace: daemonNamespace, Name: name}, &ds))
	for _, t := range ds.Spec.Template.Spec.Tolerations {
		keys = append(keys, t.Key)
	}
	for _, f := range ds.ManagedFields {
		if strings.Contains(f.FieldsV1.GetRawString(), `"f:tolerations"`) {
			owners = append(owners, f.Manager)
		}
	}
	return keys, owners
}

// has verifies the tolerations of a DaemonSet and who owns them.
func (e *env) has(name string, wantKeys, wantOwners []string) {
	e.Helper()
	keys, owners := e.tolerationsOf(name)
	if !slices.Equal(keys, wantKeys) || !slices.Equal(owners, wantOwners) {
		e.Errorf("DaemonSet %s tolerates %q, owned by %q, want %q, owned by %q", name, keys, owners, wantKeys, wantOwners)
	}
}

const (
	required   = `"nodegate.dev/required":"true"`
	foreignKey = "example.com/pool"
	foreignOne = `[{"key":"` + foreignKey + `","operator":"Exists"}]`
)

// A label is enough: the API server adds the toleration to the DaemonSet, and the node
// opens when its daemon is ready. This works while nodegate is down. DaemonSets that had
// the label before are found by lint, and the command changes them without owning their
// tolerations.
func TestALabelIsEnough(t *testing.T) {
	clustertest.SkipWithoutMutatingPolicies(t)
	e := newEnv(t)
	stop := e.startController(0)
	e.applyDaemon("helm", "early", required, foreignOne)
	ng := newGate("default", keyA, byLabelled())
	ng.Spec.Tolerate, ng.Spec.RecloseTaint = true, &v1alpha1.Taint{Key: keyB, Effect: corev1.TaintEffectNoSchedule}
	e.must(e.admin.Create(t.Context(), ng))
	e.eventually("the gate reports the deadlock", func() error {
		return e.messageContains("default", v1alpha1.ConditionReady, "run 'kubectl gate tolerate'")
	})
	admin := e.cluster.Admin()
	e.eventually("the API server adds tolerations", func() error {
		return errUnless(strings.Contains(e.ask(admin, "tolerate", "--all", "--dry-run=server").out, "added by policy nodegate-tolerations"), "it does not yet")
	})
	e.tells(e.ask(admin, "lint"), 1, "error: daemon-does-not-tolerate", "the API server adds the toleration when the DaemonSet is next updated", "kubectl gate tolerate")
	e.tells(e.ask(admin, "tolerate", "--all", "--dry-run=client"), 0, "daemonset.apps/daemons/early tolerates "+keyA+":NoSchedule and "+keyB+":NoSchedule of gate default (dry run)\n", "Its pods are replaced (update strategy RollingUpdate)")
	e.has("early", []string{foreignKey}, []string{"helm"})
	e.tells(e.ask(admin, "tolerate", "daemons/early", "-o", "json"), 0, `"by": "policy"`, `"rollout": "RollingUpdate"`)
	e.has("early", []string{foreignKey, keyA, keyB}, []string{"helm"})
	e.tells(e.ask(admin, "tolerate", "--all"), 0, "All DaemonSets tolerate")
	e.tells(e.ask(admin, "lint"), 0)
	e.inForce("default")
	stop()

	late := e.applyDaemon("helm", "late", "", foreignOne)
	e.has("late", []string{foreignKey}, []string{"helm"})
	e.must(e.admin.Patch(t.Context(), late, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{`+required+`}}}`)), client.FieldOwner("kubectl-label")))
	e.has("late", []string{foreignKey, keyA, keyB}, []string{"helm"})
	generation := late.Generation
	if late = e.applyDaemon("helm", "late", "", foreignOne); late.Generation != generation {
		t.Errorf("when its owner applies it again, its generation is %d, want %d", late.Generation, generation)
	}
	e.has("late", []string{foreignKey, keyA, keyB}, []string{"helm"})
}

// withoutTolerations deletes the binding of the tolerations policy until the test ends.
func (e *env) withoutTolerations() {
	e.Helper()
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: admission.TolerationsPolicy}}
	if !clustertest.HasMutatingPolicies() {
		return
	}
	e.must(e.admin.Delete(e.Context(), binding))
	e.Cleanup(func() { e.must(e.apply(context.WithoutCancel(e.Context()))) })
}

// The command works without the policy, as in clusters before Kubernetes 1.36. It owns the
// list of tolerations then, and does not take it over without being told to.
func TestTolerateWithoutThePolicy(t *testing.T) {
	e := newEnv(t)
	e.withoutTolerations()
	ng := newGate("default", keyA, byLabelled())
	ng.Spec.Tolerate = true
	e.must(e.admin.Create(t.Context(), ng))
	e.must(e.admin.Create(t.Context(), newGate("named", keyB, byDaemonSet("owned"))))
	e.eventually("the API server adds no tolerations", func() error {
		e.applyDaemon("helm", "probe", required, "")
		keys, _ := e.tolerationsOf("probe")
		return errUnless(len(keys) == 0, "it does")
	})
	admin := e.cluster.Admin()
	e.tells(e.ask(admin, "lint"), 1, "warning: tolerations-not-added: gate default: the gate sets tolerate, but the policy nodegate-tolerations or its binding does not exist")
	e.applyDaemon("helm", "owned", required, foreignOne)
	e.must(e.admin.Delete(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: "probe"}}))
	e.applyDaemon("helm", "free", required, "")

	e.tells(e.ask(admin, "tolerate", "--gate", "named,default", "--dry-run=server", "-o", "yaml"), 1, "by: apply", "owners:\n  - helm")
	e.has("free", nil, nil)
	a := e.ask(admin, "tolerate", "--all")
	e.tells(a, 1, "daemonset.apps/daemons/free tolerates "+keyA+":NoSchedule of gate default\n",
		"daemonset.apps/daemons/owned not changed: the list of tolerations is owned by helm. Add the toleration of "+keyA+":NoSchedule and "+keyB+":NoSchedule there, or use --force-conflicts")
	e.has("free", []string{keyA}, []string{v1alpha1.TolerateFieldManager})
	e.has("owned", []string{foreignKey}, []string{"helm"})
	e.tells(e.ask(admin, "tolerate", "daemons/owned", "--gate", "default", "--force-conflicts", "-o", "name"), 0, "daemonset.apps/daemons/owned\n")
	e.has("owned", []string{foreignKey, keyA}, []string{v1alpha1.TolerateFieldManager})
	e.tells(e.ask(admin, "tolerate", "--all"), 0, "daemonset.apps/daemons/owned tolerates "+keyB+":NoSchedule of gate named")
	e.has("owned", []string{foreignKey, keyA, keyB}, []string{v1alpha1.TolerateFieldManager})
}

// Mistakes are reported before anything is changed, and missing permissions for each
// DaemonSet.
func TestTolerateErrors(t *testing.T) {
	e := newEnv(t)
	e.withoutTolerations()
	stop := e.startController(0)
	e.must(e.admin.Create(t.Context(), newGate("default", keyA, byLabelled())))
	rejected := newGate("rejected", "example.com/not-allowed", byLabelled())
	e.must(e.admin.Create(t.Context(), rejected))
	e.eventually("the gate is rejected", func() error {
		return e.condition("rejected", v1alpha1.ConditionAccepted, metav1.ConditionFalse, "")
	})
	stop()
	e.applyDaemon("helm", "agent", required, "")
	e.applyDaemon("helm", "other", "", "")
	admin := e.cluster.Admin()
	for text, args := range map[string][]string{
		"specify DaemonSets as NAMESPACE/NAME, or --gate, or --all": {},
		"--all selects all DaemonSets":                              {"--all", "daemons/agent"},
		`"agent" is not a valid DaemonSet: use NAMESPACE/NAME`:      {"agent"},
		"empty gate name":                           {"--gate", "default,"},
		"invalid --dry-run=yes":                     {"--all", "--dry-run=yes"},
		`gate "defalt" not found`:                   {"--gate", "defalt"},
		"gate rejected is not in force":             {"--gate", "rejected"},
		"no gate waits for DaemonSet daemons/other": {"daemons/other"},
		"DaemonSet daemons/none not found":          {"daemons/none"},
	} {
		e.tells(e.ask(admin, append([]string{"tolerate"}, args...)...), 2, text)
	}
	reader := e.may("reader", reads(v1alpha1.GroupName, "nodegates"), reads("apps", "daemonsets"))
	e.tells(e.ask(reader, "tolerate", "--all"), 1, "daemonset.apps/daemons/agent not changed: ", "forbidden")
	e.has("agent", nil, nil)
	writer := e.may("writer", reads(v1alpha1.GroupName, "nodegates"), rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"get", "list", "patch"}})
	e.tells(e.ask(writer, "tolerate", "--all"), 0, "daemonset.apps/daemons/agent tolerates "+keyA+":NoSchedule of gate default")
	e.has("agent", []string{keyA}, []string{v1alpha1.TolerateFieldManager})
}
