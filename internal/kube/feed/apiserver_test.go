// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/gates"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/reflector"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
}

// counter is a Handler that counts calls. It ignores changes of pods.
type counter struct {
	nodes, gates atomic.Int64
}

func (c *counter) NodeChanged(_ string, change gate.Change) {
	if a := change.Aspects(); len(a) != 1 || a[0].Kind != gate.AspectPods {
		c.nodes.Add(1)
	}
}

func (c *counter) GatesChanged() { c.gates.Add(1) }

// observeAs runs a Feed with a client configuration until the test ends.
func observeAs(t *testing.T, config *rest.Config) (*Feed, *counter) {
	t.Helper()
	handler := &counter{}
	f, err := New(Options{Config: config, Handler: handler, Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Run(t, f.Run)
	return f, handler
}

func gateNames(f *Feed) string {
	gates, _ := f.Gates()
	var names []string
	for _, g := range gates {
		names = append(names, g.Name)
	}
	return strings.Join(names, ",")
}

func TestFeedOfAPIServer(t *testing.T) {
	s := kubetest.Start(t)
	s.Define(t)
	t.Cleanup(func() { s.Undefine(t) })
	namespace := clustertest.Namespace(t, s.Cluster)
	query := gate.PodQuery{Namespace: namespace, Selector: "app=agent"}
	s.Node(t, "fed", func(n *corev1.Node) {
		kubetest.SetReady(n, corev1.ConditionTrue, "")
		n.Status.NodeInfo.BootID = "boot"
	})
	f, handler := observeAs(t, s.Admin())
	f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}, DaemonSetNamespaces: []string{namespace}})
	kubetest.Eventually(t, "all feeds are synced", func() bool { return len(f.Unsynced()) == 0 && f.NodesSynced() })

	s.Pod(t, namespace, "agent", "fed")
	ds := kubetest.DaemonSet("agent")
	ds.Namespace, ds.UID = namespace, ""
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	ds.Spec.Template.Spec.Tolerations[0].Key = "example.com/k"
	if _, err := s.AppsV1().DaemonSets(namespace).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Gate(t, "a")
	seen := func() bool {
		facts, ok := f.Facts("fed")
		return ok && len(facts.Pods[query]) == 1 && len(facts.DaemonSets.Items) == 1 && facts.Node.BootID == "boot" && gateNames(f) == "a"
	}
	kubetest.Eventually(t, "pod, DaemonSet and gate are observed", seen)

	before := handler.nodes.Load() // the pod may be announced later than it is observed
	at := time.Now().Truncate(time.Second)
	heartbeat(t, s, "fed", at)
	kubetest.Eventually(t, "the heartbeat is observed", func() bool {
		facts, _ := f.Facts("fed")
		return facts.Node.Conditions[0].Heartbeat.Equal(at)
	})
	if got := handler.nodes.Load(); got != before {
		t.Errorf("a heartbeat was announced %d times", got-before)
	}

	if err := s.RestartComponent(t.Context(), testcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := s.CoreV1().Pods(namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "after a restart, the deletion of the pod is observed", func() bool {
		facts, ok := f.Facts("fed")
		pods, known := facts.Pods[query]
		return ok && known && len(pods) == 0
	})
	f.SetNeeds(gate.Needs{Annotations: []string{"example.com/a"}})
	s.Update(t, "fed", func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, "example.com/a", "b") })
	kubetest.Eventually(t, "the annotation is observed", func() bool {
		facts, ok := f.Facts("fed")
		return ok && facts.Node.Annotations["example.com/a"] == "b" && len(facts.Pods) == 0
	})
	s.Update(t, "fed", func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, "example.com/a", "c") })
	if err := f.CatchUpNodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if facts, _ := f.Facts("fed"); facts.Node.Annotations["example.com/a"] != "c" {
		t.Errorf("after catching up, the annotations are %v", facts.Node.Annotations)
	}
}

func heartbeat(t *testing.T, s *kubetest.Server, name string, at time.Time) {
	t.Helper()
	n, err := s.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(at)
	if _, err := s.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// While the definition of NodeGate is deleted, the API server restarts and the definition
// is restored, gates must not count as deleted.
func TestDefinitionOfAPIServer(t *testing.T) {
	s := kubetest.Start(t)
	s.Define(t)
	defined := true
	t.Cleanup(func() {
		if defined {
			s.Undefine(t)
		}
	})
	s.Gate(t, "a")
	s.Gate(t, "b")
	f, _ := observeAs(t, s.Admin())
	kubetest.Eventually(t, "the gates are observed", func() bool { return gateNames(f) == "a,b" && f.GatesError() == nil })
	// The definition is new, but this gate was created under it and deleted by itself.
	if err := s.Dynamic.Resource(v1alpha1.Resource).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "b is gone", func() bool { return gateNames(f) == "a" && f.DeletedGates()["b"] })

	s.Undefine(t)
	defined = false
	held := func() {
		t.Helper()
		if _, complete := f.Gates(); complete || gateNames(f) != "a" || f.DeletedGates()["a"] {
			t.Fatalf("gates %s, complete %v, deleted %v", gateNames(f), complete, f.DeletedGates())
		}
	}
	kubetest.Eventually(t, "the gates are known to be unreadable", func() bool { return f.GatesError() != nil })
	held()
	if err := s.RestartComponent(t.Context(), testcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	held()
	s.Define(t)
	defined = true
	kubetest.Eventually(t, "the gates are readable", func() bool { return f.GatesError() == nil && f.gates.Status().Live })
	held()
	s.Gate(t, "a")
	kubetest.Eventually(t, "a is back", func() bool {
		gates, _ := f.Gates()
		current, err := s.Dynamic.Resource(v1alpha1.Resource).Get(t.Context(), "a", metav1.GetOptions{})
		return err == nil && len(gates) == 1 && gates[0].UID == current.GetUID()
	})
	held()
}

func TestRightsOfAPIServer(t *testing.T) {
	s := kubetest.Start(t)
	s.Define(t)
	t.Cleanup(func() { s.Undefine(t) })
	s.Gate(t, "a")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes", "pods"}},
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates"}},
		{Verbs: []string{"get"}, APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}},
	}
	grant := func() {
		t.Helper()
		if _, err := s.RbacV1().ClusterRoleBindings().Create(t.Context(), binding.DeepCopy(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	grant()
	t.Cleanup(func() {
		_ = s.RbacV1().ClusterRoleBindings().Delete(context.Background(), "reader", metav1.DeleteOptions{})
		_ = s.RbacV1().ClusterRoles().Delete(context.Background(), "reader", metav1.DeleteOptions{})
	})
	f, _ := observeAs(t, s.User("reader"))
	known := func() bool { return gateNames(f) == "a" && f.GatesError() == nil && f.NodesSynced() }
	kubetest.Eventually(t, "the gates are observed", known)
	if err := s.RbacV1().ClusterRoleBindings().Delete(t.Context(), "reader", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// An existing watch continues without permission; a new one cannot be started.
	if err := s.RestartComponent(t.Context(), testcluster.APIServer); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the missing permission is reported", func() bool {
		_, complete := f.Gates()
		return apierrors.IsForbidden(f.GatesError()) && !complete && !f.NodesSynced()
	})
	if got := gateNames(f); got != "a" {
		t.Errorf("gates = %s", got)
	}
	grant()
	kubetest.Eventually(t, "the gates are known again", known)
	if !slices.ContainsFunc(f.Status(), func(s reflector.Status) bool { return s.Name == gates.GatesName && s.Live }) {
		t.Errorf("status = %+v", f.Status())
	}
}
