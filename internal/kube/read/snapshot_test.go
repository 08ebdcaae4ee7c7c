// SPDX-License-Identifier: Apache-2.0

package read

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/feed"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// A snapshot contains the same facts as a feed, for a node that has objects of all kinds.
func TestSnapshotMatchesFeed(t *testing.T) {
	s := kubetest.Start(t)
	s.Define(t)
	t.Cleanup(func() { s.Undefine(t) })
	namespace := clustertest.Namespace(t, s.Cluster)
	inZone := func(n *corev1.Node) {
		n.Labels[corev1.LabelTopologyZone] = "looked-at"
		kubetest.SetReady(n, corev1.ConditionUnknown, "")
	}
	s.Node(t, "beside", inZone)
	node := s.Node(t, "looked", inZone, func(n *corev1.Node) {
		n.Annotations = map[string]string{"example.com/a": "b", "example.com/unasked": "c"}
		n.Status.NodeInfo.BootID = "boot"
	})
	s.Pod(t, namespace, "agent", "looked")
	ds := kubetest.DaemonSet("agent")
	ds.Namespace, ds.UID = namespace, ""
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	ds.Spec.Template.Spec.Tolerations[0].Key = "example.com/k"
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "looked", OwnerReferences: owner},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "ebs.csi.aws.com", NodeID: "i"}}}}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "looked-gpu", OwnerReferences: owner}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: new("looked"), Pool: resourcev1.ResourcePool{Name: "looked", ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}},
	}}
	shared := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "looked-shared"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", AllNodes: new(true), Pool: resourcev1.ResourcePool{Name: "shared", ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "switch"}},
	}}
	_, err := s.AppsV1().DaemonSets(namespace).Create(t.Context(), ds, metav1.CreateOptions{})
	clean := func(remove func() error) {
		t.Cleanup(func() {
			if err := remove(); err != nil {
				t.Error(err)
			}
		})
	}
	if err == nil {
		_, err = s.StorageV1().CSINodes().Create(t.Context(), csi, metav1.CreateOptions{})
		clean(func() error {
			return s.StorageV1().CSINodes().Delete(context.Background(), csi.Name, metav1.DeleteOptions{})
		})
	}
	if err == nil {
		_, err = s.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{})
		clean(func() error {
			return s.ResourceV1().ResourceSlices().Delete(context.Background(), slice.Name, metav1.DeleteOptions{})
		})
	}
	if err == nil {
		_, err = s.ResourceV1().ResourceSlices().Create(t.Context(), shared, metav1.CreateOptions{})
		clean(func() error {
			return s.ResourceV1().ResourceSlices().Delete(context.Background(), shared.Name, metav1.DeleteOptions{})
		})
	}
	if err != nil {
		t.Fatal(err)
	}

	query := gate.PodQuery{Namespace: namespace, Selector: "app=agent"}
	counted := gate.DeviceQuery{Driver: "gpu.example.com", Pools: v1alpha1.PoolsNodeLocal, Selectors: gate.SelectorsOf([]string{`device.driver != ""`})}
	notLocal := gate.DeviceQuery{Driver: "gpu.example.com", Pools: v1alpha1.PoolsShared, Selectors: gate.SelectorsOf(nil)}
	needs := gate.Needs{
		Pods: []gate.PodQuery{query, {Namespace: namespace, Selector: "app=none"}}, DaemonSetNamespaces: []string{namespace},
		Annotations: []string{"example.com/a"}, NodeInfo: []string{"bootID"}, CSINodes: true, ResourceSlices: []string{"gpu.example.com", "none.example.com"},
		Devices: []gate.DeviceQuery{counted, notLocal, {Driver: "none.example.com", Pools: v1alpha1.PoolsShared}},
	}
	f := observe(t, s.Admin())
	f.SetNeeds(needs)
	kubetest.Eventually(t, "all feeds are synced", func() bool { return len(f.Unsynced()) == 0 && f.NodesSynced() })
	r, err := NewReader(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	snapshot, errs := r.Snapshot(t.Context(), node, func(*gate.DaemonSets) gate.Needs { return needs })
	observed, _ := f.Facts("looked")
	observed.CompleteSources, observed.Boot, observed.PodsAt = nil, gate.Boot{}, time.Time{} // which a snapshot does not have
	if len(errs) > 0 || !reflect.DeepEqual(snapshot, observed) {
		t.Errorf("errors: %v; the snapshot is\n%+v\nthe feed has\n%+v", errs, snapshot, observed)
	}
	all, errs, err := r.Snapshots(t.Context(), func(*gate.DaemonSets) gate.Needs { return needs })
	i := slices.IndexFunc(all, func(f gate.Facts) bool { return f.Node.Name == "looked" })
	if err != nil || len(errs) > 0 || i < 0 || !reflect.DeepEqual(all[i], snapshot) {
		t.Errorf("the snapshots of all nodes are %+v (%v, %v)\nthe snapshot of the node is\n%+v", all, errs, err, snapshot)
	}
	if len(snapshot.Pods[query]) != 1 || len(snapshot.DaemonSets.Items) != 1 || snapshot.CSINode.Owner != node.UID ||
		len(snapshot.ResourceSlices["gpu.example.com"]) != 1 || snapshot.Zone != (gate.Zone{Nodes: 2, Silent: 2}) {
		t.Errorf("facts are missing: %+v", snapshot)
	}
	if local, pools := snapshot.Devices[counted], snapshot.SharedPools[notLocal]; len(local) != 1 || local[0].Names != "gpu-0,gpu-1" ||
		len(pools) != 1 || pools[0].Slices[0].Groups[0].Names != "switch" || snapshot.DeviceTaintRules == nil {
		t.Errorf("devices are missing: %+v %+v %v", local, pools, snapshot.DeviceTaintRules)
	}
}

// The snapshots of all nodes equal the snapshot of each node, across pages, and also if
// some resources cannot be read.
func TestSnapshotsMatchSnapshot(t *testing.T) {
	s := kubetest.Start(t)
	namespace := clustertest.Namespace(t, s.Cluster)
	zone := func(name string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = name }
	}
	silent := func(n *corev1.Node) { kubetest.SetReady(n, corev1.ConditionUnknown, "") }
	s.Node(t, "all-1", zone("z1"), silent)
	s.Node(t, "all-2", zone("z1"))
	s.Node(t, "all-3", zone("z2"), silent)
	s.Node(t, "all-4", silent)
	s.Node(t, "all-5")
	s.ServiceAccount(t, namespace)
	random := rand.New(rand.NewPCG(5, 2026))
	for i := range 40 {
		labelled := []string{"agent", "other"}[random.IntN(2)]
		s.LabelledPod(t, namespace, fmt.Sprintf("%s-%d", labelled, i), labelled, fmt.Sprintf("all-%d", 1+random.IntN(5)))
	}
	few := gate.Needs{DaemonSetNamespaces: []string{namespace}, CSINodes: true, ResourceSlices: []string{"a.example.com", "b.example.com"},
		Devices: []gate.DeviceQuery{{Driver: "a.example.com", Pools: v1alpha1.PoolsShared, Selectors: gate.SelectorsOf(nil)}}}
	for _, selector := range []string{"app=agent", "app=other", "app in (agent,other)", "!!"} {
		few.Pods = append(few.Pods, gate.PodQuery{Namespace: namespace, Selector: selector})
	}
	many := few
	for i := range podListsMax {
		many.Pods = append(many.Pods, gate.PodQuery{Namespace: namespace, Selector: fmt.Sprintf("app!=%d", i)})
	}
	for _, tt := range []struct {
		name    string
		refused string
		Needs   gate.Needs
	}{
		{"few queries", "", few},
		{"many queries", "", many},
		{"pods forbidden", "/pods", few},
		{"ResourceSlices forbidden", "/resourceslices", few},
		{"DeviceTaintRules forbidden", "/devicetaintrules", few},
		{"CSINodes forbidden", "/csinodes", few},
		{"DaemonSets forbidden", "/daemonsets", few},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := rest.CopyConfig(s.Admin())
			config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return forbidding{inner, tt.refused} })
			r, err := NewReader(config)
			if err != nil {
				t.Fatal(err)
			}
			needs := func(*gate.DaemonSets) gate.Needs { return tt.Needs }
			all, errs, err := newSnapshot(r, "", 2).all(t.Context(), needs)
			if err != nil || len(all) < 5 {
				t.Fatalf("%d nodes, %v", len(all), err)
			}
			for _, f := range all {
				node, err := r.Node(t.Context(), f.Node.Name)
				if err != nil {
					t.Fatal(err)
				}
				one, oneErrs := r.Snapshot(t.Context(), node, needs)
				if !f.Node.Silent() {
					one.Zone = f.Zone // a single snapshot reads it for unreachable nodes only
				}
				if !reflect.DeepEqual(f, one) {
					t.Errorf("node %s: among all snapshots\n%+v\nalone\n%+v", f.Node.Name, f, one)
				}
				if hidden(errs, tt.Needs) != hidden(oneErrs, tt.Needs) || len(errs) != len(oneErrs) {
					t.Errorf("node %s: errors %v among all snapshots, %v alone", f.Node.Name, errs, oneErrs)
				}
			}
		})
	}
}

// hidden returns which of the needs are hidden by errors.
func hidden(errs []Error, n gate.Needs) string {
	var out []string
	for what, of := range map[string]gate.Needs{
		"pods": {Pods: n.Pods[:1]}, "a bad query": {Pods: n.Pods[3:4]}, "daemonsets": {DaemonSetNamespaces: n.DaemonSetNamespaces},
		"csinodes": {CSINodes: true}, "slices": {ResourceSlices: n.ResourceSlices}, "devices": {Devices: n.Devices},
	} {
		if slices.ContainsFunc(errs, func(g Error) bool { return g.Hides(of) }) {
			out = append(out, what)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// forbidding responds 403 to requests whose path ends with suffix.
type forbidding struct {
	http.RoundTripper
	suffix string
}

func (r forbidding) RoundTrip(request *http.Request) (*http.Response, error) {
	if end := strings.TrimSuffix(request.URL.Path, "/"); r.suffix != "" && (strings.HasSuffix(end, r.suffix) || strings.Contains(end, r.suffix+"/")) {
		return &http.Response{StatusCode: http.StatusForbidden, Status: "403 Forbidden", Header: make(http.Header), Body: http.NoBody, Request: request}, nil
	}
	return r.RoundTripper.RoundTrip(request)
}

// discardHandler is a feed.Handler that does nothing.
type discardHandler struct{}

func (discardHandler) NodeChanged(string, gate.Change) {}
func (discardHandler) GatesChanged()                   {}

// observe runs a Feed until the test ends.
func observe(t *testing.T, config *rest.Config) *feed.Feed {
	t.Helper()
	f, err := feed.New(feed.Options{Config: config, Handler: discardHandler{}, Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Run(t, f.Run)
	return f
}

// SnapshotsOf returns the facts about the selected Nodes only.
func TestSnapshotsOf(t *testing.T) {
	s := kubetest.Start(t)
	namespace := clustertest.Namespace(t, s.Cluster)
	const label = "example.com/rack"
	s.Node(t, "racked-1", func(n *corev1.Node) { n.Labels[label] = "r1" })
	s.Node(t, "racked-2", func(n *corev1.Node) { n.Labels[label] = "r2" })
	s.ServiceAccount(t, namespace)
	s.LabelledPod(t, namespace, "agent-1", "agent", "racked-1")
	query := gate.PodQuery{Namespace: namespace, Selector: "app=agent"}
	facts, errs, err := newTestReader(t, s).SnapshotsOf(t.Context(), NodeSelection{Labels: label + "=r1"}, func(*gate.DaemonSets) gate.Needs {
		return gate.Needs{Pods: []gate.PodQuery{query}}
	})
	if err != nil || len(errs) > 0 {
		t.Fatal(err, errs)
	}
	if len(facts) != 1 || facts[0].Node.Name != "racked-1" || len(facts[0].Pods[query]) != 1 {
		t.Errorf("facts %+v", facts)
	}
}
