// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if len(looked.Pods[query]) != 1 || len(looked.DaemonSets.Items) != 1 || looked.CSINode.Owner != node.UID ||
		len(looked.ResourceSlices["gpu.example.com"]) != 1 || looked.Zone != (gate.Zone{Nodes: 2, Silent: 2}) {
		t.Errorf("not everything was there to be seen: %+v", looked)
	}
}
