// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	controlplane "github.com/nodegate/nodegate/cluster"
	"github.com/nodegate/nodegate/cluster/await"
	"github.com/nodegate/nodegate/cluster/clustertest"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
	"github.com/nodegate/nodegate/internal/gate"
)

func TestMain(m *testing.M) {
	clustertest.Main(m, controlplane.Options{Components: []controlplane.Component{controlplane.APIServer}})
}

// server is the API server under test, seen by its administrator.
type server struct {
	*controlplane.Cluster
	kubernetes.Interface
	dynamic dynamic.Interface
}

func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{Cluster: clustertest.Shared(t)}
	var err error
	if s.Interface, err = kubernetes.NewForConfig(s.Admin()); err != nil {
		t.Fatal(err)
	}
	if s.dynamic, err = dynamic.NewForConfig(s.Admin()); err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually waits until something is true.
func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	// Cleanups wait, too, when the test's own context has ended.
	err := await.Until(context.WithoutCancel(t.Context()), what, func(context.Context) error {
		if !true() {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// node creates a Node for one test. It carries the taints that are asked for
// only: the API server adds one of its own to every new Node. And it has a
// label, since of an empty Node the API server never tells who manages what.
func (s *server) node(t *testing.T, name string, change ...func(*corev1.Node)) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"example.com/a": "b"}}}
	for _, c := range change {
		c(n)
	}
	status, taints := n.Status, n.Spec.Taints
	created, err := s.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := s.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	created.Spec.Taints = taints
	if created, err = s.CoreV1().Nodes().Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if status.NodeInfo.BootID == "" && len(status.Conditions) == 0 {
		return created
	}
	created.Status = status
	created, err = s.CoreV1().Nodes().UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (s *server) update(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	n, err := s.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(n)
	if _, err := s.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// counter is a Handler that counts, and asks for what is needed.
type counter struct {
	nodes, gates atomic.Int64
}

func (c *counter) NodeChanged(string, gate.Change) { c.nodes.Add(1) }

func (c *counter) GatesChanged() { c.gates.Add(1) }

// feed runs a feed for one test.
func (s *server) feed(t *testing.T, config *rest.Config) (*Feed, *counter) {
	t.Helper()
	told := &counter{}
	f, err := New(Options{Config: config, Handler: told, Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return f, told
}

// define installs the definition.
func (s *server) define(t *testing.T) {
	t.Helper()
	crdtest.Install(t, s.Admin())
}

// undefine removes the definition. It works in a test's cleanup too.
func (s *server) undefine(t *testing.T) {
	t.Helper()
	client := s.dynamic.Resource(definitionResource)
	if err := client.Delete(context.Background(), definitionName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the definition is gone", func() bool {
		_, err := client.Get(context.Background(), definitionName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func (s *server) gate(t *testing.T, name string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	manifest := `
apiVersion: nodegate.dev/v1alpha1
kind: NodeGate
metadata: {name: ` + name + `}
spec:
  nodeSelector: {}
  taint: {key: example.com/` + name + `, effect: NoSchedule}
  openWhen:
  - name: l
    label: {key: example.com/l}
`
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gate "+name+" is created", func() bool {
		_, err := s.dynamic.Resource(v1alpha1.Resource).Create(t.Context(), o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
			t.Fatal(err)
		}
		return err == nil
	})
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
	s := startServer(t)
	s.define(t)
	t.Cleanup(func() { s.undefine(t) })
	namespace := clustertest.Namespace(t, s.Cluster)
	query := gate.PodQuery{Namespace: namespace, Selector: "app=agent"}
	s.node(t, "fed", func(n *corev1.Node) { setReady(n, corev1.ConditionTrue, ""); n.Status.NodeInfo.BootID = "boot" })
	f, told := s.feed(t, s.Admin())
	f.SetNeeds(gate.Needs{Pods: []gate.PodQuery{query}, DaemonSetNamespaces: []string{namespace}})
	eventually(t, "all feeds are synced", func() bool { return len(f.Unsynced()) == 0 && f.NodesSynced() })

	s.pod(t, namespace, "agent", "fed")
	ds := testDaemonSet("agent")
	ds.Namespace, ds.UID = namespace, ""
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	ds.Spec.Template.Spec.Tolerations[0].Key = "example.com/k"
	if _, err := s.AppsV1().DaemonSets(namespace).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.gate(t, "a")
	seen := func() bool {
		facts, ok := f.Facts("fed")
		return ok && len(facts.Pods[query]) == 1 && len(facts.DaemonSets.Items) == 1 && facts.Node.BootID == "boot" && gateNames(f) == "a"
	}
	eventually(t, "pod, DaemonSet and gate are seen", seen)

	before := told.nodes.Load()
	at := time.Now().Truncate(time.Second)
	heartbeat(t, s, "fed", at)
	eventually(t, "the heartbeat is seen", func() bool {
		facts, _ := f.Facts("fed")
		return facts.Node.Conditions[0].Heartbeat.Equal(at)
	})
	if got := told.nodes.Load(); got != before {
		t.Errorf("told %d times of a heartbeat", got-before)
	}

	if err := s.RestartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := s.CoreV1().Pods(namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "after a restart, the pod is seen to be gone", func() bool {
		facts, ok := f.Facts("fed")
		pods, known := facts.Pods[query]
		return ok && known && len(pods) == 0
	})
	f.SetNeeds(gate.Needs{Annotations: []string{"example.com/a"}})
	s.update(t, "fed", func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, "example.com/a", "b") })
	eventually(t, "the annotation is seen", func() bool {
		facts, ok := f.Facts("fed")
		return ok && facts.Node.Annotations["example.com/a"] == "b" && len(facts.Pods) == 0
	})
}

func heartbeat(t *testing.T, s *server, name string, at time.Time) {
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

// pod creates a pod on a node, the first of its namespace.
func (s *server) pod(t *testing.T, namespace, name, node string) {
	t.Helper()
	s.serviceAccount(t, namespace)
	s.labelledPod(t, namespace, name, "agent", node)
}

// serviceAccount creates the one that pods run as.
func (s *server) serviceAccount(t *testing.T, namespace string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := s.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// labelledPod creates a pod with the label app on a node.
func (s *server) labelledPod(t *testing.T, namespace, name, app, node string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}
	p.Spec.NodeName = node
	p.Spec.AutomountServiceAccountToken = new(bool)
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if _, err := s.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The definition of NodeGate is removed, the API server restarts, and the
// definition is restored: nothing that gates hold may be let go.
func TestDefinitionOfAPIServer(t *testing.T) {
	s := startServer(t)
	s.define(t)
	defined := true
	t.Cleanup(func() {
		if defined {
			s.undefine(t)
		}
	})
	s.gate(t, "a")
	s.gate(t, "b")
	f, _ := s.feed(t, s.Admin())
	eventually(t, "the gates are seen", func() bool { return gateNames(f) == "a,b" && f.GatesError() == nil })
	// The definition is young; but this gate was deleted under it, by itself.
	if err := s.dynamic.Resource(v1alpha1.Resource).Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b is gone", func() bool { return gateNames(f) == "a" && f.DeletedGates()["b"] })

	s.undefine(t)
	defined = false
	held := func() {
		t.Helper()
		if _, complete := f.Gates(); complete || gateNames(f) != "a" || f.DeletedGates()["a"] {
			t.Fatalf("gates %s, complete %v, deleted %v", gateNames(f), complete, f.DeletedGates())
		}
	}
	eventually(t, "the gates are known to be unreadable", func() bool { return f.GatesError() != nil })
	held()
	if err := s.RestartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	held()
	s.define(t)
	defined = true
	eventually(t, "the gates are readable", func() bool { return f.GatesError() == nil && f.gates.Status().Live })
	held()
	s.gate(t, "a")
	eventually(t, "a is back", func() bool {
		gates, _ := f.Gates()
		current, err := s.dynamic.Resource(v1alpha1.Resource).Get(t.Context(), "a", metav1.GetOptions{})
		return err == nil && len(gates) == 1 && gates[0].UID == current.GetUID()
	})
	held()
}

func TestRightsOfAPIServer(t *testing.T) {
	s := startServer(t)
	s.define(t)
	t.Cleanup(func() { s.undefine(t) })
	s.gate(t, "a")
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
	f, _ := s.feed(t, s.User("reader"))
	known := func() bool { return gateNames(f) == "a" && f.GatesError() == nil && f.NodesSynced() }
	eventually(t, "the gates are seen", known)
	if err := s.RbacV1().ClusterRoleBindings().Delete(t.Context(), "reader", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// A watch that has begun goes on without the right; a new one does not begin.
	if err := s.RestartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss of the right is known", func() bool {
		_, complete := f.Gates()
		return apierrors.IsForbidden(f.GatesError()) && !complete && !f.NodesSynced()
	})
	if got := gateNames(f); got != "a" {
		t.Errorf("gates = %s", got)
	}
	grant()
	eventually(t, "the gates are known again", known)
	if !slices.ContainsFunc(f.Status(), func(s FeedStatus) bool { return s.Name == gatesName && s.Live }) {
		t.Errorf("status = %+v", f.Status())
	}
}
