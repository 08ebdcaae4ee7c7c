// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/cluster/clustertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// Who looks once sees what a feed observes, of a node that has everything.
func TestLookSeesWhatAFeedObserves(t *testing.T) {
	s := startServer(t)
	s.define(t)
	t.Cleanup(func() { s.undefine(t) })
	namespace := clustertest.Namespace(t, s.Cluster)
	inZone := func(n *corev1.Node) {
		n.Labels[corev1.LabelTopologyZone] = "looked-at"
		setReady(n, corev1.ConditionUnknown, "")
	}
	s.node(t, "beside", inZone)
	node := s.node(t, "looked", inZone, func(n *corev1.Node) {
		n.Annotations = map[string]string{"example.com/a": "b", "example.com/unasked": "c"}
		n.Status.NodeInfo.BootID = "boot"
	})
	s.pod(t, namespace, "agent", "looked")
	ds := testDaemonSet("agent")
	ds.Namespace, ds.UID = namespace, ""
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	ds.Spec.Template.Spec.Tolerations[0].Key = "example.com/k"
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "looked", OwnerReferences: owner},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "ebs.csi.aws.com", NodeID: "i"}}}}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "looked-gpu", OwnerReferences: owner}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: ptr.To("looked"), Pool: resourcev1.ResourcePool{Name: "looked", ResourceSliceCount: 1},
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
	if err != nil {
		t.Fatal(err)
	}

	query := gate.PodQuery{Namespace: namespace, Selector: "app=agent"}
	needs := gate.Needs{
		Pods: []gate.PodQuery{query, {Namespace: namespace, Selector: "app=none"}}, DaemonSetNamespaces: []string{namespace},
		Annotations: []string{"example.com/a"}, NodeInfo: []string{"bootID"}, CSINodes: true, ResourceSlices: []string{"gpu.example.com", "none.example.com"},
	}
	f, _ := s.feed(t, s.Admin())
	f.SetNeeds(needs)
	eventually(t, "all feeds are synced", func() bool { return len(f.Unsynced()) == 0 && f.NodesSynced() })
	r, err := NewReader(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	looked, gaps := r.Look(t.Context(), node, func(*gate.DaemonSets) gate.Needs { return needs })
	observed, _ := f.Facts("looked")
	observed.CompleteSources = nil // of which a look knows nothing
	if len(gaps) > 0 || !reflect.DeepEqual(looked, observed) {
		t.Errorf("gaps %v, and it sees\n%+v\nwhere the feed has\n%+v", gaps, looked, observed)
	}
	all, gaps, err := r.LookAll(t.Context(), func(*gate.DaemonSets) gate.Needs { return needs })
	i := slices.IndexFunc(all, func(f gate.Facts) bool { return f.Node.Name == "looked" })
	if err != nil || len(gaps) > 0 || i < 0 || !reflect.DeepEqual(all[i], looked) {
		t.Errorf("a look at all nodes sees %+v (gaps %v, %v)\nwhere a look at the node sees\n%+v", all, gaps, err, looked)
	}
	if len(looked.Pods[query]) != 1 || len(looked.DaemonSets.Items) != 1 || looked.CSINode.Owner != node.UID ||
		len(looked.ResourceSlices["gpu.example.com"]) != 1 || looked.Zone != (gate.Zone{Nodes: 2, Silent: 2}) {
		t.Errorf("not everything was there to be seen: %+v", looked)
	}
}

// A look at all nodes sees of each what a look at that node sees, whoever looks:
// also on the far side of a page, and of what may not be read.
func TestLookAllSeesWhatLooksSee(t *testing.T) {
	s := startServer(t)
	namespace := clustertest.Namespace(t, s.Cluster)
	zone := func(name string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = name }
	}
	silent := func(n *corev1.Node) { setReady(n, corev1.ConditionUnknown, "") }
	s.node(t, "all-1", zone("z1"), silent)
	s.node(t, "all-2", zone("z1"))
	s.node(t, "all-3", zone("z2"), silent)
	s.node(t, "all-4", silent)
	s.node(t, "all-5")
	s.serviceAccount(t, namespace)
	random := rand.New(rand.NewPCG(5, 2026))
	for i := range 40 {
		labelled := []string{"agent", "other"}[random.IntN(2)]
		s.labelledPod(t, namespace, fmt.Sprintf("%s-%d", labelled, i), labelled, fmt.Sprintf("all-%d", 1+random.IntN(5)))
	}
	few := gate.Needs{DaemonSetNamespaces: []string{namespace}, CSINodes: true, ResourceSlices: []string{"a.example.com", "b.example.com"}}
	for _, selector := range []string{"app=agent", "app=other", "app in (agent,other)", "!!"} {
		few.Pods = append(few.Pods, gate.PodQuery{Namespace: namespace, Selector: selector})
	}
	many := few
	for i := range podListsMax {
		many.Pods = append(many.Pods, gate.PodQuery{Namespace: namespace, Selector: fmt.Sprintf("app!=%d", i)})
	}
	for _, who := range []struct {
		name    string
		refused string
		needs   gate.Needs
	}{
		{"few queries", "", few},
		{"many queries", "", many},
		{"no pods may be read", "/pods", few},
		{"nor ResourceSlices", "/resourceslices", few},
		{"nor CSINodes", "/csinodes", few},
		{"nor DaemonSets", "/daemonsets", few},
	} {
		t.Run(who.name, func(t *testing.T) {
			config := rest.CopyConfig(s.Admin())
			config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return refusing{inner, who.refused} })
			r, err := NewReader(config)
			if err != nil {
				t.Fatal(err)
			}
			needs := func(*gate.DaemonSets) gate.Needs { return who.needs }
			all, gaps, err := r.lookAll(t.Context(), needs, 2)
			if err != nil || len(all) < 5 {
				t.Fatalf("%d nodes, %v", len(all), err)
			}
			for _, f := range all {
				node, err := r.Node(t.Context(), f.Node.Name)
				if err != nil {
					t.Fatal(err)
				}
				one, oneGaps := r.Look(t.Context(), node, needs)
				if !f.Node.Silent() {
					one.Zone = f.Zone // it is not asked for
				}
				if !reflect.DeepEqual(f, one) {
					t.Errorf("of %s, a look at all sees\n%+v\nwhere a look at it sees\n%+v", f.Node.Name, f, one)
				}
				if hidden(gaps, who.needs) != hidden(oneGaps, who.needs) || len(gaps) != len(oneGaps) {
					t.Errorf("of %s, the gaps are %v where a look at it has %v", f.Node.Name, gaps, oneGaps)
				}
			}
		})
	}
}

// hidden tells which kinds that are needed some gap hides.
func hidden(gaps []Gap, n gate.Needs) string {
	var out []string
	for what, of := range map[string]gate.Needs{
		"pods": {Pods: n.Pods[:1]}, "a bad query": {Pods: n.Pods[3:4]}, "daemonsets": {DaemonSetNamespaces: n.DaemonSetNamespaces},
		"csinodes": {CSINodes: true}, "slices": {ResourceSlices: n.ResourceSlices},
	} {
		if slices.ContainsFunc(gaps, func(g Gap) bool { return g.Hides(of) }) {
			out = append(out, what)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// refusing answers 403 to requests whose path has an end.
type refusing struct {
	http.RoundTripper
	end string
}

func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	if end := strings.TrimSuffix(request.URL.Path, "/"); r.end != "" && (strings.HasSuffix(end, r.end) || strings.Contains(end, r.end+"/")) {
		return &http.Response{StatusCode: http.StatusForbidden, Status: "403 Forbidden", Header: make(http.Header), Body: http.NoBody, Request: request}, nil
	}
	return r.RoundTripper.RoundTrip(request)
}
