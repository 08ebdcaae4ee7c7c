// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/cluster"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
)

// The fleet of the benchmark: three zones, two pods on each node, and Nodes of
// the size that kubelets with their images make them.
const (
	fleetNodes  = 5000
	fleetImages = 50
)

// benchGates ask for every kind of thing that 'why' has to read.
var benchGates = []string{`
metadata: {name: agent}
spec:
  nodeSelector: {}
  taint: {key: example.com/agent, effect: NoSchedule}
  openWhen:
  - {name: daemon, daemonSet: {namespace: default, name: agent}}
  - {name: driver, csiDriver: {name: ebs.csi.aws.com}}
  - {name: gpus, resourceSlices: {driver: gpu.example.com}}`, `
metadata: {name: label}
spec:
  nodeSelector: {}
  taint: {key: example.com/label, effect: NoSchedule}
  openWhen: [{name: fit, label: {key: fit}}]`,
}

// BenchmarkFleet asks a real API server with 5,000 nodes. It takes minutes to fill:
//
//	go test ./internal/cli -run '^$' -bench Fleet -benchtime 20x
func BenchmarkFleet(b *testing.B) {
	c, err := cluster.Start(b.Context(), cluster.Options{Components: []cluster.Component{cluster.APIServer}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Stop() })
	populate(b, c.Admin())
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, c.Admin()); err != nil {
		b.Fatal(err)
	}
	for _, verb := range []struct {
		name   string
		args   []string
		status int
	}{
		{"why", []string{"why", "n0000"}, exitNo},
		{"why-silent", []string{"why", "n0001"}, exitNo},
		{"status", []string{"status"}, exitNo}, // no controller runs: the records are counted
		{"wait", []string{"wait", "--all", "--timeout=0"}, exitNo},
		{"open", []string{"open", "n0002", "--gate=agent", "--for=1h", "--reason=x", "--dry-run=server"}, exitYes},
	} {
		b.Run(verb.name, func(b *testing.B) {
			for b.Loop() {
				var out, errOut bytes.Buffer
				status := Execute(b.Context(), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut}, append(verb.args, "--kubeconfig", kubeconfig))
				if status != verb.status {
					b.Fatalf("it ended with %d:\n%s%s", status, out.String(), errOut.String())
				}
			}
		})
	}
}

func populate(b *testing.B, config *rest.Config) {
	b.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.ContentType = -1, "application/json"
	crdtest.Install(b, config)
	core, gates := kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config).Resource(v1alpha1.Resource)
	for _, text := range benchGates {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			b.Fatal(err)
		}
		ng := &unstructured.Unstructured{Object: object}
		ng.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeGate"))
		if _, err := gates.Create(b.Context(), ng, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	pod.ServiceAccountName = "default"
	labels := map[string]string{"app": "agent"}
	if _, err := core.CoreV1().ServiceAccounts("default").Create(b.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		b.Log(err) // the API server may have made it
	}
	ds, err := core.AppsV1().DaemonSets("default").Create(b.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(16)
	for i := range fleetNodes {
		group.Go(func() error { return add(ctx, core, ds, pod, i) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// add adds a node that the gates hold, and two pods on it.
func add(ctx context.Context, core kubernetes.Interface, ds *appsv1.DaemonSet, pod corev1.PodSpec, i int) error {
	name := fmt.Sprintf("n%04d", i)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z" + strconv.Itoa(i%3), corev1.LabelHostname: name},
		Annotations: map[string]string{},
	}}
	for _, g := range []string{"agent", "label"} {
		node.Annotations[v1alpha1.RecordAnnotationPrefix+g] = fmt.Sprintf(`{"state":"Closed","reason":"Birth","taint":"example.com/%s:NoSchedule","source":"crd"}`, g)
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "example.com/" + g, Effect: corev1.TaintEffectNoSchedule})
	}
	for j := range fleetImages {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example.com/some/image-%02d@sha256:%064d", j, j), fmt.Sprintf("registry.example.com/some/image-%02d:v1", j)}, SizeBytes: int64(j),
		})
	}
	ready := corev1.ConditionTrue
	if i%5000 == 1 {
		ready = corev1.ConditionUnknown
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: ready, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute))})
	}
	if _, err := core.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a node: %w", err)
	}
	for j := range 2 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, j), Namespace: "default", Labels: ds.Spec.Selector.MatchLabels}, Spec: pod}
		p.Spec.NodeName = name
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&ds.ObjectMeta, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
		if _, err := core.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating a pod: %w", err)
		}
	}
	return nil
}
