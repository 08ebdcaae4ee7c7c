// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
	"github.com/nodegate/nodegate/testcluster"
)

// The cluster of the benchmark: three zones, a daemon pod and a workload pod on each
// node, three of ten nodes held, and Nodes of a realistic size, including the images
// that kubelets report.
const (
	fleetNodes  = 5000
	fleetImages = 50
)

// benchGates depend on every kind of resource that 'why' can read.
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

// BenchmarkFleet uses a real API server with 5,000 nodes. Creating these takes minutes:
//
//	go test ./internal/cli -run '^$' -bench Fleet -benchtime 20x
func BenchmarkFleet(b *testing.B) {
	c, err := testcluster.Start(b.Context(), testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Stop() })
	populate(b, c.Admin())
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(kubeconfig, c.Admin()); err != nil {
		b.Fatal(err)
	}
	verbs := []benchVerb{
		{"why", []string{"why", "n0000"}, exitNo},
		{"why-unreachable", []string{"why", "n0001"}, exitNo},
		{"status-of-records", []string{"status"}, exitNo}, // without a controller, records are counted
		{"wait", []string{"wait", "--all", "--timeout=0"}, exitNo},
		{"open", []string{"open", "n0002", "--gate=agent", "--for=1h", "--reason=x", "--dry-run=server"}, exitYes},
		{"report-html", []string{"report", "-o", "html"}, exitYes},
		{"report-html-without-pods", []string{"report", "-o", "html", "--pods=false"}, exitYes},
	}
	for _, verb := range verbs {
		verb.run(b, kubeconfig)
	}
	writeStatus(b, c.Admin())
	for _, verb := range []benchVerb{
		{"status", []string{"status"}, exitYes},
		{"status-wide", []string{"status", "-o", "wide"}, exitYes},
	} {
		verb.run(b, kubeconfig)
	}
}

// A benchVerb is a command line to measure, and its expected exit status.
type benchVerb struct {
	name   string
	args   []string
	status int
}

func (v benchVerb) run(b *testing.B, kubeconfig string) {
	b.Run(v.name, func(b *testing.B) {
		printed := 0
		for b.Loop() {
			var out, errOut bytes.Buffer
			status := Execute(b.Context(), genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut}, append(v.args, "--kubeconfig", kubeconfig))
			if status != v.status {
				b.Fatalf("exit status %d:\n%.2000s%s", status, out.String(), errOut.String())
			}
			printed = out.Len()
		}
		b.ReportMetric(float64(printed), "B/print")
	})
}

// writeStatus writes what a controller would: a status of maximum size for each gate, and a
// Lease.
func writeStatus(b *testing.B, config *rest.Config) {
	b.Helper()
	core, gates := kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config).Resource(v1alpha1.Resource)
	for _, name := range []string{"agent", "label"} {
		object, err := gates.Get(b.Context(), name, metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		status := v1alpha1.NodeGateStatus{
			ObservedGeneration: object.GetGeneration(),
			Nodes:              v1alpha1.NodeCounts{Selected: fleetNodes, Open: fleetNodes * 7 / 10, Closed: fleetNodes * 3 / 10},
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, LastTransitionTime: metav1.Now()},
				{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, LastTransitionTime: metav1.Now()},
			},
		}
		for i := range 10 {
			status.Waiting = append(status.Waiting, v1alpha1.WaitingNode{
				Node: fmt.Sprintf("n%04d", i), Since: metav1.Now(), Signal: name, Reason: string(v1alpha1.ReadingPodNotReady), Message: "pod default/n0000-0 is not ready"})
		}
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := gates.Patch(b.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			b.Fatal(err)
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultNamespace}}
	if _, err := core.CoreV1().Namespaces().Create(b.Context(), namespace, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName, Namespace: namespace.Name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("nodegate-0"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro()),
		},
	}
	if _, err := core.CoordinationV1().Leases(namespace.Name).Create(b.Context(), lease, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
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
		b.Log(err) // the API server may have created it already
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

// add adds a node, a daemon pod and a workload pod, with the timestamps of a node that
// took a few seconds. These are in the past when the benchmark starts.
func add(ctx context.Context, core kubernetes.Interface, ds *appsv1.DaemonSet, pod corev1.PodSpec, i int) error {
	name, now := fmt.Sprintf("n%04d", i), time.Now()
	after := func(seconds int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(seconds) * time.Second)) }
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z" + strconv.Itoa(i%3), corev1.LabelHostname: name, "karpenter.sh/nodepool": "pool-" + strconv.Itoa(i%5)},
		Annotations: map[string]string{},
	}}
	held := i%10 < 3
	for _, g := range []string{"agent", "label"} {
		if !held {
			node.Annotations[v1alpha1.RecordAnnotationPrefix+g] = fmt.Sprintf(`{"state":"Open","reason":"SignalsHold","since":%q,"taint":"example.com/%s:NoSchedule","source":"crd"}`, after(3+i%7).UTC().Format(time.RFC3339), g)
			continue
		}
		node.Annotations[v1alpha1.RecordAnnotationPrefix+g] = fmt.Sprintf(`{"state":"Closed","reason":"Birth","taint":"example.com/%s:NoSchedule","source":"crd"}`, g)
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "example.com/" + g, Effect: corev1.TaintEffectNoSchedule})
	}
	for j := range fleetImages {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example.com/some/image-%02d@sha256:%064d", j, j), fmt.Sprintf("registry.example.com/some/image-%02d:v1", j)}, SizeBytes: int64(j),
		})
	}
	ready := corev1.ConditionTrue
	if i == 1 {
		ready = corev1.ConditionUnknown
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: ready, LastHeartbeatTime: metav1.Now(), LastTransitionTime: after(1)})
	}
	if _, err := core.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a node: %w", err)
	}
	daemon := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "-0", Namespace: "default", Labels: ds.Spec.Selector.MatchLabels}, Spec: pod}
	daemon.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&ds.ObjectMeta, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	workload := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name + "-1", Namespace: "default", Labels: map[string]string{"app": "shop"}}, Spec: pod}
	return errors.Join(runs(ctx, core, daemon, name, after(1), after(3+i%7)), runs(ctx, core, workload, name, after(4+i%7), after(5+i%7)))
}

// runs adds a running pod to a node, with the status that a kubelet reports.
func runs(ctx context.Context, core kubernetes.Interface, p *corev1.Pod, node string, started, ready metav1.Time) error {
	p.Spec.NodeName = node
	created, err := core.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating a pod: %w", err)
	}
	created.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &started,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: started},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ready},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", Ready: true, ContainerID: "containerd://" + string(created.UID), Image: "i", ImageID: "i",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		}},
	}
	if _, err := core.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("reporting a pod: %w", err)
	}
	return nil
}
