// SPDX-License-Identifier: Apache-2.0

package testcluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// createNode creates a KWOK node that is deleted when the test ends.
func createNode(t *testing.T, c *testcluster.Cluster, name string) {
	t.Helper()
	nodes := clientFor(t, c.Admin()).CoreV1().Nodes()
	if _, err := nodes.Create(t.Context(), testcluster.KWOKNode(name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNode(t, c, name) })
}

func deleteNode(t *testing.T, c *testcluster.Cluster, name string) {
	t.Helper()
	nodes := clientFor(t, c.Admin()).CoreV1().Nodes()
	if err := nodes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// podSpec is a pod for one node.
func podSpec(node string) corev1.PodSpec {
	return corev1.PodSpec{
		NodeSelector:   map[string]string{corev1.LabelHostname: node},
		InitContainers: []corev1.Container{{Name: "init", Image: "example.com/init"}},
		Containers:     []corev1.Container{{Name: "main", Image: "example.com/main"}},
	}
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestPodRuns(t *testing.T) {
	c := clustertest.Shared(t)
	pods := clientFor(t, c.Admin()).CoreV1().Pods(clustertest.Namespace(t, c))
	createNode(t, c, "runs")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: podSpec("runs")}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod to be bound by the scheduler and to run", func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, "pod", metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName == "runs" && pod.Status.Phase == corev1.PodRunning &&
			podReady(pod) && pod.Status.ContainerStatuses[0].ContainerID != "", err
	})
	if err := pods.Delete(t.Context(), "pod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod to be deleted", func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, "pod", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func TestHeldPodBecomesReadyAfterRelease(t *testing.T) {
	c := clustertest.Shared(t)
	pods := clientFor(t, c.Admin()).CoreV1().Pods(clustertest.Namespace(t, c))
	createNode(t, c, "holds")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Annotations: map[string]string{
			testcluster.HoldAnnotation:  "true",
			testcluster.DelayAnnotation: "100ms",
		}},
		Spec: podSpec("holds"),
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod's containers to be created", func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, "pod", metav1.GetOptions{})
		return err == nil && len(pod.Status.ContainerStatuses) == 1 && !podReady(pod), err
	})
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, testcluster.HoldAnnotation)
	if _, err := pods.Patch(t.Context(), "pod", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod to become Ready", func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, "pod", metav1.GetOptions{})
		return err == nil && podReady(pod), err
	})
}

func TestDaemonSetRunsOnEveryNode(t *testing.T) {
	daemonSetRuns(t, clustertest.Shared(t))
}

// The program with a few controllers does the same as kube-controller-manager, on nodes whose
// taint not-ready it removes.
func TestControllersWithoutControllerManager(t *testing.T) {
	c := start(t, testcluster.Options{Components: []testcluster.Component{testcluster.Scheduler, testcluster.Controllers, testcluster.KWOK}})
	daemonSetRuns(t, c)
	client := clientFor(t, c.Admin()).AppsV1().Deployments(clustertest.Namespace(t, c))
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("daemon-a")},
		},
	}
	if _, err := client.Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Deployment's pods to be ready", func(ctx context.Context) (bool, error) {
		deployment, err := client.Get(ctx, "web", metav1.GetOptions{})
		return err == nil && deployment.Status.ReadyReplicas == 3, err
	})
}

// daemonSetRuns checks that a DaemonSet's pods run on two new nodes.
func daemonSetRuns(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	createNode(t, c, "daemon-a")
	createNode(t, c, "daemon-b")
	daemonSets := clientFor(t, c.Admin()).AppsV1().DaemonSets(clustertest.Namespace(t, c))
	labels := map[string]string{"app": "daemon"}
	daemonSet := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
			},
		},
	}
	if _, err := daemonSets.Create(t.Context(), daemonSet, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both daemons to be ready", func(ctx context.Context) (bool, error) {
		daemonSet, err := daemonSets.Get(ctx, "daemon", metav1.GetOptions{})
		return err == nil && daemonSet.Status.NumberReady >= 2 &&
			daemonSet.Status.NumberReady == daemonSet.Status.DesiredNumberScheduled, err
	})
}

func TestAuditLogHasAnsweredRequest(t *testing.T) {
	c := clustertest.Shared(t)
	createNode(t, c, "audited")
	file, err := os.Open(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			t.Fatalf("creating the node is not in the audit log: %v", err)
		}
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource string }
			// The policy includes the response body for nodes.
			ResponseObject struct{ Metadata metav1.ObjectMeta }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		if event.Verb == "create" && event.ObjectRef.Resource == "nodes" && event.User.Username == "admin" &&
			event.ResponseObject.Metadata.Name == "audited" {
			return
		}
	}
}
