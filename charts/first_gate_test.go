// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
	"github.com/nodegate/nodegate/testcluster/freeport"
)

// requiredKey is the taint key of the default gate, warmUpKey that of the gate that waits for
// images.
const (
	requiredKey = "startup-taint.cluster-autoscaler.kubernetes.io/required-daemonsets"
	warmUpKey   = "startup-taint.cluster-autoscaler.kubernetes.io/image-warm-up"
)

// The steps from 'helm template' to the first gated node require no manual change except
// one label, to which the API server adds the toleration, and an image to pull. No kubelet
// runs containers here: the test starts nodegate with the arguments of the Deployment, and verifies separately that its pods are admitted.
func TestFirstGate(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	program, err := testbed.BuildProgram(t.Context(), t.TempDir()) // as the image, which exists before
	must(t, err)
	api, err := kubernetes.NewForConfig(c.Admin())
	must(t, err)
	daemon := requiredDaemon()
	_, err = api.AppsV1().DaemonSets(daemon.Namespace).Create(t.Context(), daemon, metav1.CreateOptions{})
	must(t, err)
	applier, err := testbed.NewApplier(c.Admin())
	must(t, err)

	began := time.Now()
	definition := printed(t, nil, "show", "crds", chart)
	objects := rendered(t, object{
		"metrics": object{"port": freePort(t)}, "healthPort": freePort(t), "imageWarmUp": object{"images": []string{"registry.example.com/model:v1"}},
	}, "--kube-version", "1.37")
	must(t, applier.Apply(t.Context(), definition...))
	must(t, applier.Apply(t.Context(), restrictedNamespace()))
	must(t, applier.Apply(t.Context(), objects...))
	applied := time.Since(began)

	startAsDeployed(t, c, program, objects)
	must(t, testbed.AwaitGate(t.Context(), applier, defaultGate))
	must(t, testbed.AwaitGate(t.Context(), applier, warmUp))
	ready := time.Since(began)
	label := []byte(`{"metadata":{"labels":{"nodegate.dev/required":"true"}}}`)
	daemon, err = api.AppsV1().DaemonSets(daemon.Namespace).Patch(t.Context(), daemon.Name, types.MergePatchType, label, metav1.PatchOptions{})
	must(t, err)
	if got, want := daemon.Spec.Template.Spec.Tolerations, []corev1.Toleration{{Key: requiredKey, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}; !slices.Equal(got, want) {
		t.Fatalf("the label adds the tolerations %v, want %v", got, want)
	}

	node, err := api.CoreV1().Nodes().Create(t.Context(), testcluster.KWOKNode("first"), metav1.CreateOptions{})
	must(t, err)
	if !tainted(node) || !hasKey(node, warmUpKey) {
		t.Fatalf("the node was created with %v", node.Spec.Taints)
	}
	eventually(t, "the node to be open", func(ctx context.Context) error {
		node, err := api.CoreV1().Nodes().Get(ctx, "first", metav1.GetOptions{})
		if err == nil && (tainted(node) || hasKey(node, warmUpKey)) {
			return errors.New("a gate is closed")
		}
		return err
	})
	total := time.Since(began)
	t.Logf("applied after %.1fs, gate ready after %.1fs, first node gated and open after %.1fs", applied.Seconds(), ready.Seconds(), total.Seconds())

	for in, label := range map[string]string{"kube-system": "app=agent", namespace: "app.kubernetes.io/name=nodegate-image-warm-up"} {
		pods, err := api.CoreV1().Pods(in).List(t.Context(), metav1.ListOptions{LabelSelector: label})
		must(t, err)
		if len(pods.Items) != 1 || !podReady(&pods.Items[0]) {
			t.Errorf("the node opened without the pod with the label %s: %v", label, pods.Items)
		}
	}
	parametersAreUntracked(t, api)
	deployedPodsRunOnAClosedNode(t, api, deployment(t, objects))
	deployedPodsPreferTheControlPlane(t, api, deployment(t, objects))
}

func restrictedNamespace() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{
		"name": namespace, "labels": object{"pod-security.kubernetes.io/enforce": "restricted"},
	}}}
}

// requiredDaemon returns a DaemonSet for which the default gate waits once it has the label.
// It lacks the toleration of the gate's taint.
func requiredDaemon() *appsv1.DaemonSet {
	labels := map[string]string{"app": "agent"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "example.com/agent"}}},
			},
		},
	}
}

func tainted(node *corev1.Node) bool { return hasKey(node, requiredKey) }

func hasKey(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// parameterLabels are the labels of the objects that nodegate creates.
var parameterLabels = []string{v1alpha1.ParameterLabel, v1alpha1.TolerationsLabel, "app.kubernetes.io/managed-by", "velero.io/exclude-from-backup"}

// parametersAreUntracked verifies that tools that prune objects do not consider objects
// that nodegate creates as their own.
func parametersAreUntracked(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	parameters, err := api.CoreV1().PodTemplates(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(parameters.Items) != 2 { // of two policies
		t.Errorf("%d parameters for two gates", len(parameters.Items))
	}
	for _, p := range parameters.Items {
		for label := range p.Labels {
			if !slices.Contains(parameterLabels, label) {
				t.Errorf("parameter %s has the label %s", p.Name, label)
			}
		}
		for name := range p.Annotations {
			if !strings.HasPrefix(name, "nodegate.dev/") {
				t.Errorf("parameter %s has the annotation %s", p.Name, name)
			}
		}
		if len(p.OwnerReferences) > 0 {
			t.Errorf("parameter %s has owners %v", p.Name, p.OwnerReferences)
		}
	}
}

// deployedPodsRunOnAClosedNode verifies that the pods of the Deployment pass the strictest
// Pod Security Standard and are scheduled to a node on which a gate is closed.
func deployedPodsRunOnAClosedNode(t *testing.T, api kubernetes.Interface, d *appsv1.Deployment) {
	t.Helper()
	must(t, api.CoreV1().Nodes().Delete(t.Context(), "first", metav1.DeleteOptions{}))
	hold := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:"true"}}}}}`, testcluster.HoldAnnotation)
	daemons := api.AppsV1().DaemonSets("kube-system")
	changed, err := daemons.Patch(t.Context(), "agent", types.MergePatchType, []byte(hold), metav1.PatchOptions{})
	must(t, err)
	eventually(t, "the daemon's new pods to stay unready", func(ctx context.Context) error {
		daemon, err := daemons.Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && daemon.Status.ObservedGeneration < changed.Generation {
			return errors.New("the DaemonSet controller has not observed the change")
		}
		return err
	})
	_, err = api.CoreV1().Nodes().Create(t.Context(), testcluster.KWOKNode("closed"), metav1.CreateOptions{})
	must(t, err)
	selector := metav1.FormatLabelSelector(d.Spec.Selector)
	eventually(t, "nodegate's pods to run on the closed node", func(ctx context.Context) error {
		pods, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		ready := 0
		for i := range pods.Items {
			switch pod := &pods.Items[i]; {
			case pod.Spec.NodeName == "first": // gone with its node; Kubernetes takes a minute to see that
				err := api.CoreV1().Pods(namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
				if client.IgnoreNotFound(err) != nil {
					return err
				}
			case pod.Spec.NodeName == "closed" && podReady(pod):
				ready++
			}
		}
		if ready != int(*d.Spec.Replicas) {
			return fmt.Errorf("%d of %d pods are ready on it", ready, len(pods.Items))
		}
		return nil
	})
	node, err := api.CoreV1().Nodes().Get(t.Context(), "closed", metav1.GetOptions{})
	must(t, err)
	if !tainted(node) {
		t.Errorf("the node is not closed: %v", node.Spec.Taints)
	}
}

// deployedPodsPreferTheControlPlane verifies that nodegate's pods are scheduled to control
// plane nodes as created by kubeadm, if there are any.
func deployedPodsPreferTheControlPlane(t *testing.T, api kubernetes.Interface, d *appsv1.Deployment) {
	t.Helper()
	const role = "node-role.kubernetes.io/control-plane"
	for _, name := range []string{"control-plane-1", "control-plane-2", "worker"} {
		node := testcluster.KWOKNode(name)
		if name != "worker" {
			node.Labels[role] = ""
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: role, Effect: corev1.TaintEffectNoSchedule})
		}
		_, err := api.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		must(t, err)
	}
	on := func(ctx context.Context, namespace, selector string) (nodes []string, err error) {
		pods, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil {
			for i := range pods.Items {
				if pods.Items[i].DeletionTimestamp == nil {
					nodes = append(nodes, pods.Items[i].Spec.NodeName)
				}
			}
		}
		return nodes, err
	}
	// The scheduler observes nodes in the order of their creation.
	eventually(t, "the scheduler to observe the nodes", func(ctx context.Context) error {
		nodes, err := on(ctx, "kube-system", "app=agent")
		if err == nil && !slices.Contains(nodes, "worker") {
			return fmt.Errorf("the daemon is on %q", nodes)
		}
		return err
	})
	selector := metav1.FormatLabelSelector(d.Spec.Selector)
	must(t, api.CoreV1().Pods(namespace).DeleteCollection(t.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{LabelSelector: selector}))
	var nodes []string
	eventually(t, "nodegate's new pods to be scheduled", func(ctx context.Context) (err error) {
		nodes, err = on(ctx, namespace, selector)
		if err == nil && (len(nodes) != int(*d.Spec.Replicas) || slices.Contains(nodes, "")) {
			return fmt.Errorf("they are on %q", nodes)
		}
		return err
	})
	if slices.Sort(nodes); !slices.Equal(nodes, []string{"control-plane-1", "control-plane-2"}) {
		t.Errorf("nodegate's pods are on %q, want them on the control plane", nodes)
	}
}

func get(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// freePort returns a port without a listener.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := freeport.Choose("")
	must(t, err)
	return port
}
