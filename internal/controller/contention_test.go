// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/fleet"
)

// storedNode is a Node whose managed fields are those that the API server's code computes.
type storedNode struct {
	*testing.T
	fields *managedfields.FieldManager
	node   runtime.Object
	reads  int
}

func newStoredNode(t *testing.T) *storedNode {
	t.Helper()
	gvk := corev1.SchemeGroupVersion.WithKind("Node")
	node := &corev1.Node{}
	node.SetGroupVersionKind(gvk)
	node.Name = "n0000"
	return &storedNode{T: t, node: node, fields: managedfieldstest.NewFakeFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), gvk)}
}

// write replaces the taints, as a field manager.
func (s *storedNode) write(manager string, keys ...string) {
	s.Helper()
	controllertest.Pass(time.Second) // the times of entries are in seconds
	node := s.node.DeepCopyObject().(*corev1.Node)
	node.Spec.Taints = []corev1.Taint{}
	for _, key := range keys {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	var err error
	if s.node, err = s.fields.Update(s.node, node, manager); err != nil {
		s.Fatal(err)
	}
}

// reporter returns a reporter that reads the node.
func (s *storedNode) reporter() *reporter {
	s.Helper()
	c := New(Options{}, controllertest.Client(s.T, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
		s.reads++
		s.node.(*corev1.Node).DeepCopyInto(obj.(*corev1.Node))
		return nil
	}}), newTestMetrics())
	s.Cleanup(c.queue.ShutDown)
	return c.newReporter()
}

// identify returns the text of condition Contended about the other writer.
func (s *storedNode) identify(r *reporter, last *reported, ng *v1alpha1.NodeGate) string {
	s.Helper()
	nodes := fleet.NewNameList([]string{"n0000"})
	r.identifyWriter(s.Context(), ng, last, &nodes)
	return last.contention.writer
}

const istioKey = "cni.istio.io/not-ready"

func istioGate() *v1alpha1.NodeGate {
	return controllertest.Gate("istio", func(s *v1alpha1.NodeGateSpec) { s.Taint.Key = istioKey })
}

func TestContendedNamesTheOtherWriter(t *testing.T) {
	for name, c := range map[string]struct {
		write func(*storedNode)
		want  []string
		not   string
	}{
		"another taint remains": {func(s *storedNode) {
			s.write("kubelet", istioKey, "other")
			s.write(v1alpha1.FieldManager, istioKey, "other", "third")
			s.write("pilot-discovery", "other")
		}, []string{`the last other writer of spec.taints is "pilot-discovery"`, "istiod can be configured to write cni.istio.io/not-ready", "taint.enabled=false"}, "audit log"},
		"no taint remains": {func(s *storedNode) {
			s.write("kubelet", istioKey)
			s.write("pilot-discovery")
			s.write(v1alpha1.FieldManager, istioKey)
			s.write("pilot-discovery")
		}, []string{"does not record which field manager removed the last taint", "node n0000 in the API server's audit log", "istiod can be configured to write cni.istio.io/not-ready", "taint.enabled=false"}, "pilot-discovery"},
		"Kubernetes has changed its own taint since": {func(s *storedNode) {
			s.write("kubelet", istioKey)
			s.write("pilot-discovery")
			s.write(v1alpha1.FieldManager, istioKey)
			s.write("kube-controller-manager", istioKey, "node.kubernetes.io/unschedulable")
		}, []string{"no other field manager of spec.taints is recorded"}, `"kube-controller-manager"`},
		"a cloud has changed its own taint since": {func(s *storedNode) {
			s.write("pilot-discovery", "other")
			s.write(v1alpha1.FieldManager, istioKey, "other")
			s.write("aws-cloud-controller-manager", istioKey, "node.cloudprovider.kubernetes.io/shutdown")
		}, []string{"no other field manager of spec.taints is recorded"}, "aws-cloud"},
		"nodegate has restored the taint": {func(s *storedNode) {
			s.write("pilot-discovery", "other")
			s.write(v1alpha1.FieldManager, istioKey, "other")
		}, []string{"no other field manager of spec.taints is recorded", "audit log"}, "pilot-discovery"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStoredNode(t)
				c.write(s)
				got := s.identify(s.reporter(), &reported{}, istioGate())
				for _, want := range c.want {
					if !strings.Contains(got, want) {
						t.Errorf("the message does not contain %q: %s", want, got)
					}
				}
				if strings.Contains(got, c.not) {
					t.Errorf("the message contains %q: %s", c.not, got)
				}
			})
		})
	}
}

// nodegate is the only field manager whenever it restores the taint, so a writer that is not
// found is looked for again. A writer that was found is not.
func TestOtherWriterIsLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, last, ng := newStoredNode(t), &reported{}, controllertest.Gate("gate")
		r := s.reporter()
		s.write(v1alpha1.FieldManager, ng.Spec.Taint.Key, "other")
		s.identify(r, last, ng)
		s.write("other-writer", "other")
		if got := s.identify(r, last, ng); s.reads != 1 {
			t.Errorf("read %d times within %s: %s", s.reads, writerRetry, got)
		}
		controllertest.Pass(writerRetry)
		if got := s.identify(r, last, ng); !strings.Contains(got, `"other-writer"`) {
			t.Errorf("the message does not name the writer: %s", got)
		}
		s.write(v1alpha1.FieldManager, ng.Spec.Taint.Key, "other")
		controllertest.Pass(writerRetry)
		if got := s.identify(r, last, ng); s.reads != 2 || !strings.Contains(got, `"other-writer"`) {
			t.Errorf("read %d times: %s", s.reads, got)
		}
		if r.identifyWriter(t.Context(), ng, last, &fleet.NameList{}); last.contention != (contention{}) {
			t.Errorf("without contended nodes: %+v", last.contention)
		}
	})
}
