// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/await/awaittest"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// options are the options of the installation that the tests of this package share. It
// does not include the NodeGate CRD, because closing at birth does not need it.
var options = admission.Options{
	Namespace:      "nodegate-system",
	ServiceAccount: "nodegate",
	AllowedTaintKeys: []string{
		"test.nodegate.dev/a", "test.nodegate.dev/b", "test.nodegate.dev/b:NoExecute", "test.nodegate.dev/c", v1alpha1.TaintOutOfService + ":NoExecute",
	},

	AllowedStampAnnotations: []string{"example.com/opened-at"},
}

func TestMain(m *testing.M) {
	// The controller manager deletes namespaces and collects garbage.
	clustertest.Main(m, testcluster.Options{Components: []testcluster.Component{testcluster.ControllerManager}})
}

// unguarded is a namespace with its own birth policy and without guards, so that
// its parameter can have any contents.
const unguarded = "unguarded"

// furtherKeys is the number of further taint keys that are allowed in namespace unguarded: as many
// as the parameter of the tolerations policy can have.
const furtherKeys = 64

// furtherKey returns one of these keys. They are sorted.
func furtherKey(i int) string {
	label := strings.Repeat("k", 63)
	return fmt.Sprintf("%s.%s.%s.%s/%s-%03d", label, label, label, label[:61], label[:59], i)
}

// installation is a cluster with the policies in force.
type installation struct {
	*testcluster.Cluster
	admin *kubernetes.Clientset
	// nodegate is the ServiceAccount that the policies confine. RBAC allows it
	// everything, so that every denial is by a policy.
	nodegate *kubernetes.Clientset
}

var shared struct {
	once sync.Once
	*installation
	err error
}

// installBirth is install for tests of the birth policy, which are skipped if the API
// server does not support such policies.
func installBirth(t testing.TB) *installation {
	t.Helper()
	clustertest.SkipWithoutMutatingPolicies(t)
	return install(t)
}

// install returns the shared cluster, in which all policies are in force that its API
// server supports.
func install(t testing.TB) *installation {
	t.Helper()
	c := clustertest.Shared(t)
	shared.once.Do(func() {
		shared.installation, shared.err = newInstallation(context.Background(), c)
	})
	if shared.err != nil {
		t.Fatalf("installing the policies: %v", shared.err)
	}
	return shared.installation
}

func newInstallation(ctx context.Context, c *testcluster.Cluster) (*installation, error) {
	in := &installation{Cluster: c}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: options.Namespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: unguarded}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: options.Namespace, Name: options.ServiceAccount}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "nodegate-everything"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: options.Namespace, Name: options.ServiceAccount}},
		},
	}
	policies, err := policiesOf(options)
	if err != nil {
		return nil, err
	}
	second := options
	second.Namespace = unguarded
	for i := range furtherKeys {
		second.AllowedTaintKeys = append(slices.Clip(second.AllowedTaintKeys), furtherKey(i))
	}
	unguardedPolicies, err := policiesOf(second)
	if err != nil {
		return nil, err
	}
	policies = append(policies, suffixed(slices.DeleteFunc(unguardedPolicies, isGuard), "-"+unguarded)...)
	writer, err := client.New(c.Admin(), client.Options{})
	if err != nil {
		return nil, err
	}
	for _, object := range append(objects, policies...) {
		if err := writer.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	if in.admin, err = kubernetes.NewForConfig(c.Admin()); err != nil {
		return nil, err
	}
	config, err := c.ServiceAccount(ctx, options.Namespace, options.ServiceAccount)
	if err != nil {
		return nil, err
	}
	if in.nodegate, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	return in, in.awaitGuards(ctx)
}

// awaitGuards waits until the guards of Nodes and of parameters deny something.
func (in *installation) awaitGuards(ctx context.Context) error {
	name := "guarded"
	if _, err := in.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	kubelet, err := kubernetes.NewForConfig(in.User("system:node:"+name, "system:nodes"))
	if err != nil {
		return err
	}
	denied := func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }
	err = await.Until(ctx, "the guards", func(ctx context.Context) error {
		_, confinement := in.nodegate.CoreV1().Nodes().Patch(ctx, name, mergePatch, []byte(`{"spec":{"unschedulable":true}}`), dryRunPatch)
		_, records := kubelet.CoreV1().Nodes().Patch(ctx, name, mergePatch, []byte(`{"metadata":{"annotations":{"gate.nodegate.dev/x":"y"}}}`), dryRunPatch)
		_, parameters := in.admin.CoreV1().PodTemplates(options.Namespace).Create(ctx, parameter(), metav1.CreateOptions{DryRun: dryRun})
		if !denied(confinement) || !denied(records) || !denied(parameters) {
			return fmt.Errorf("not all writes are denied: %v, %v, %v", confinement, records, parameters)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return in.admin.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
}

// as returns a client with the configuration.
func as(t testing.TB, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatalf("creating a client: %v", err)
	}
	return clientset
}

// policiesOf returns the policies that the API server supports.
func policiesOf(options admission.Options) ([]client.Object, error) {
	policies, err := admission.Policies(options)
	if !clustertest.HasMutatingPolicies() {
		policies = slices.DeleteFunc(policies, func(o client.Object) bool { return !isGuard(o) })
	}
	return policies, err
}

// isGuard reports whether a policy or binding belongs to a guard.
func isGuard(o client.Object) bool {
	return !strings.HasPrefix(o.GetName(), admission.BirthPolicy) && !strings.HasPrefix(o.GetName(), admission.TolerationsPolicy)
}

// close makes the API server close the gates on new nodes until the test ends.
func (in *installation) close(t testing.TB, gates ...*v1alpha1.NodeGate) {
	t.Helper()
	in.put(t, rendered(t, gates...))
}

// put writes a parameter as nodegate does, and removes it at the end of the test. If the
// API server supports the birth policy, put returns when the parameter is in effect: the
// API server receives PodTemplates in the order in which they were written, and put
// proves that a later one is in effect.
func (in *installation) put(t testing.TB, p *corev1.PodTemplate) {
	t.Helper()
	in.write(t, p)
	t.Cleanup(func() { in.remove(t, p.Namespace) })
	if clustertest.HasMutatingPolicies() {
		in.awaitOrder(t, p)
	}
}

// leave makes the birth policy change no Node: there is no parameter.
func (in *installation) leave(t testing.TB) {
	t.Helper()
	in.remove(t, options.Namespace)
	if clustertest.HasMutatingPolicies() {
		in.awaitOrder(t, parameter())
	}
}

// awaitOrder waits until the API server has received a parameter that was written: until
// the parameter of the other namespace, which is written later, is in effect. That one is
// removed again, because each of two policies removes the records that the other has added.
func (in *installation) awaitOrder(t testing.TB, p *corev1.PodTemplate) {
	t.Helper()
	fence := newGate(fmt.Sprintf("fence-%d", time.Now().UnixNano()), "c", metav1.LabelSelector{})
	fence.Spec.NodeSelector.MatchLabels = map[string]string{"fence": fence.Name}
	second := rendered(t, fence)
	if second.Namespace = unguarded; p.Namespace == unguarded {
		second.Namespace = options.Namespace
	}
	in.write(t, second)
	in.awaitTaint(t, fence, true)
	in.remove(t, second.Namespace)
	in.awaitTaint(t, fence, false)
}

// awaitTaint waits until a probe node of the gate has the gate's taint, or until it has not.
func (in *installation) awaitTaint(t testing.TB, gate *v1alpha1.NodeGate, want bool) {
	t.Helper()
	probe, _ := admission.Probe(gate, admission.Entry{})
	eventually(t, func() error {
		created, err := in.nodegate.CoreV1().Nodes().Create(t.Context(), probe, metav1.CreateOptions{DryRun: dryRun})
		if err != nil {
			return err
		}
		taint := corev1.Taint{Key: gate.Spec.Taint.Key, Effect: gate.Spec.Taint.Effect}
		if got := slices.Contains(created.Spec.Taints, taint); got != want {
			return fmt.Errorf("the probe node has the taint: %t, want %t", got, want)
		}
		return nil
	})
}

// remove makes the binding of a namespace select no parameter, as if there were none.
func (in *installation) remove(t testing.TB, namespace string) {
	t.Helper()
	p := admission.Parameter(namespace, v1alpha1.SourceCRD, nil)
	p.Labels[v1alpha1.ParameterLabel] = "removed"
	in.write(t, p)
}

// write creates or replaces a parameter.
func (in *installation) write(t testing.TB, p *corev1.PodTemplate) {
	t.Helper()
	templates := in.nodegate.CoreV1().PodTemplates(p.Namespace)
	_, err := templates.Update(context.Background(), p, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = templates.Create(context.Background(), p, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatalf("writing the parameter: %v", err)
	}
}

// awaitProof waits until it is proved that the gate is closed at birth.
func (in *installation) awaitProof(t testing.TB, gate *v1alpha1.NodeGate) {
	t.Helper()
	eventually(t, func() error { return in.prove(t.Context(), gate) })
}

// prove proves, as the controller does, that the gate is closed at birth.
func (in *installation) prove(ctx context.Context, gate *v1alpha1.NodeGate) error {
	probe, ok := admission.Probe(gate, admission.Entry{})
	if !ok {
		return fmt.Errorf("gate %s selects no node", gate.Name)
	}
	created, err := in.nodegate.CoreV1().Nodes().Create(ctx, probe, metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		return err
	}
	return admission.Proved(admission.ByPolicy, gate, created)
}

// eventually waits until check returns nil.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	awaittest.Until(t, "a check of "+t.Name(), func(context.Context) error { return check() })
}

// newGate returns a gate with the taint test.nodegate.dev/<key>:NoSchedule.
func newGate(name, key string, selector metav1.LabelSelector) *v1alpha1.NodeGate {
	gate := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	gate.Spec.NodeSelector.MatchLabels = selector.MatchLabels
	for _, r := range selector.MatchExpressions {
		gate.Spec.NodeSelector.MatchExpressions = append(gate.Spec.NodeSelector.MatchExpressions, v1alpha1.LabelSelectorRequirement(r))
	}
	gate.Spec.Taint = v1alpha1.Taint{Key: "test.nodegate.dev/" + key, Effect: corev1.TaintEffectNoSchedule}
	return gate
}

// rendered returns the parameter of the gates.
func rendered(t testing.TB, gates ...*v1alpha1.NodeGate) *corev1.PodTemplate {
	t.Helper()
	var entries []admission.Entry
	for _, g := range gates {
		e, err := admission.NewEntry(g)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return admission.Parameter(options.Namespace, v1alpha1.SourceCRD, entries)
}

// parameter returns the parameter of a gate "one" that selects every node.
func parameter() *corev1.PodTemplate {
	e, err := admission.NewEntry(newGate("one", "a", metav1.LabelSelector{}))
	if err != nil {
		panic(err)
	}
	return admission.Parameter(options.Namespace, v1alpha1.SourceCRD, []admission.Entry{e})
}

// label returns the label by which a test selects its own nodes.
func label(t testing.TB) map[string]string {
	return map[string]string{"test": strings.NewReplacer("/", ".", " ", "-", "_", "-").Replace(t.Name())}
}

func deleteNode(t testing.TB, in *installation, name string) {
	t.Helper()
	err := in.admin.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("deleting node %s: %v", name, err)
	}
}

// renamed creates the policies under other names, next to those in force, and deletes
// them when the test ends.
func renamed(t *testing.T, in *installation, policies []client.Object, suffix string) {
	t.Helper()
	writer, err := client.New(in.Admin(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range suffixed(policies, suffix) {
		if err := writer.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
		t.Cleanup(func() {
			if err := writer.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
}

// suffixed appends a suffix to the names of policies and bindings.
func suffixed(policies []client.Object, suffix string) []client.Object {
	for _, object := range policies {
		object.SetName(object.GetName() + suffix)
		switch binding := object.(type) {
		case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
			binding.Spec.PolicyName += suffix
		case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
			binding.Spec.PolicyName += suffix
		}
	}
	return policies
}
