// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nodegate/nodegate/testcluster/simnode"
)

// A fleet that settles replaces pods that will never be ready: one whose deletion the API
// server began and did not complete, and one of a Node that no longer exists.
func TestEnsurePod(t *testing.T) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for name, test := range map[string]struct {
		change   func(*corev1.Pod)
		replaced bool
	}{
		"running":                {func(*corev1.Pod) {}, false},
		"marked for deletion":    {func(p *corev1.Pod) { p.DeletionTimestamp = &now }, true},
		"of another Node object": {func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-time.Second)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientset()
			f := &fleet{
				site:      &site{kube: kube},
				daemonSet: &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: daemon}},
			}
			f.daemonSet.Spec.Template.Labels = map[string]string{"app": daemon}
			n := &node{fleet: f, Node: simnode.New(kube, "n", "boot"), rng: rand.New(rand.NewPCG(1, 1))}
			n.nextPod()
			pod := n.pod.DeepCopy()
			pod.CreationTimestamp = now
			test.change(pod)
			if err := kube.Tracker().Add(pod); err != nil {
				t.Fatal(err)
			}
			object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: now}}
			if err := n.ensurePod(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			_, err := kube.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
			if replaced := err != nil; replaced != test.replaced || (n.pod.Name != pod.Name) != test.replaced {
				t.Errorf("the pod is now %s and the first pod is gone: %v; want it replaced: %v", n.pod.Name, replaced, test.replaced)
			}
		})
	}
}
