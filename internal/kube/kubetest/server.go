// SPDX-License-Identifier: Apache-2.0

// Package kubetest provides objects and an API server for the tests of the packages in
// internal/kube.
package kubetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// Server is the API server under test, with an administrator's clients.
type Server struct {
	*testcluster.Cluster
	kubernetes.Interface
	Dynamic dynamic.Interface
}

// Start returns the API server that the tests of a package share.
func Start(t *testing.T) *Server {
	t.Helper()
	s := &Server{Cluster: clustertest.Shared(t)}
	var err error
	if s.Interface, err = kubernetes.NewForConfig(s.Admin()); err != nil {
		t.Fatal(err)
	}
	if s.Dynamic, err = dynamic.NewForConfig(s.Admin()); err != nil {
		t.Fatal(err)
	}
	return s
}

// Eventually waits until a condition is true. It fails the test after a timeout.
func Eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	// Cleanups, too, may wait when the test's own context has ended.
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

// Node creates a Node that is deleted at the end of the test. The Node has only the given
// taints; the one that the API server adds to every new Node is removed. It has a label,
// because the API server reports no field manager of an empty Node.
func (s *Server) Node(t *testing.T, name string, change ...func(*corev1.Node)) *corev1.Node {
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

// Update reads, changes and updates a Node.
func (s *Server) Update(t *testing.T, name string, change func(*corev1.Node)) {
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

// Define installs NodeGate's CustomResourceDefinition.
func (s *Server) Define(t *testing.T) {
	t.Helper()
	crdtest.Install(t, s.Admin())
}

// definition is the name of NodeGate's CustomResourceDefinition.
var (
	definition  = v1alpha1.Resource.GroupResource().String()
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// Undefine removes NodeGate's CustomResourceDefinition. It may be called in a test's
// cleanup.
func (s *Server) Undefine(t *testing.T) {
	t.Helper()
	client := s.Dynamic.Resource(definitions)
	if err := client.Delete(context.Background(), definition, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the definition is gone", func() bool {
		_, err := client.Get(context.Background(), definition, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// Gate creates a NodeGate that waits for a label.
func (s *Server) Gate(t *testing.T, name string) {
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
	Eventually(t, "gate "+name+" is created", func() bool {
		_, err := s.Dynamic.Resource(v1alpha1.Resource).Create(t.Context(), o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// Pod creates a pod on a node. It must be the first pod in its namespace.
func (s *Server) Pod(t *testing.T, namespace, name, node string) {
	t.Helper()
	s.ServiceAccount(t, namespace)
	s.LabelledPod(t, namespace, name, "agent", node)
}

// ServiceAccount creates the default ServiceAccount of a namespace.
func (s *Server) ServiceAccount(t *testing.T, namespace string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := s.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// LabelledPod creates a pod with the label app on a node.
func (s *Server) LabelledPod(t *testing.T, namespace, name, app, node string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}
	p.Spec.NodeName = node
	p.Spec.AutomountServiceAccountToken = new(bool)
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if _, err := s.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Run calls run, and cancels its context and waits for it when the test ends. An error
// that run returns fails the test.
func Run(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
