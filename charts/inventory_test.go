// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// forgotten fails the test if a node still has taints or annotations of nodegate, or the
// cluster has an object that it did not have before.
func (i *installation) forgotten() {
	i.Helper()
	var nodes corev1.NodeList
	must(i.T, i.admin.List(i.Context(), &nodes))
	for j := range nodes.Items {
		if n := &nodes.Items[j]; hasKey(n, requiredKey) || hasKey(n, heldKey) || strings.Contains(fmt.Sprint(n.Annotations), "nodegate.dev") {
			i.Errorf("node %s has taints %v and annotations %v", n.Name, n.Spec.Taints, n.Annotations)
		}
		must(i.T, i.admin.Delete(i.Context(), &nodes.Items[j]))
	}
	for _, name := range i.inventory() {
		if !slices.Contains(i.before, name) {
			i.Errorf("%s still exists", name)
		}
	}
}

// ofAPIServer are the kinds of objects that the API server creates and deletes at any time:
// the APIService of a CRD, for example, some time after the CRD.
var ofAPIServer = []string{"APIService", "Event", "IPAddress", "ServiceCIDR", "Namespace"}

// inventory returns all objects in the cluster, except those that the API server creates
// for itself at any time.
func (i *installation) inventory() []string {
	i.Helper()
	admin := rest.CopyConfig(i.cluster.Admin())
	admin.QPS, admin.WarningHandler = -1, rest.NoWarnings{} // of kinds that are deprecated
	api, err := discovery.NewDiscoveryClientForConfig(admin)
	must(i.T, err)
	objects, err := metadata.NewForConfig(admin)
	must(i.T, err)
	lists, err := api.ServerPreferredResources()
	must(i.T, err)
	all := map[string]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		must(i.T, err)
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(ofAPIServer, r.Kind) {
				continue
			}
			found, err := objects.Resource(gv.WithResource(r.Name)).List(i.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue // the kind was just removed
			}
			must(i.T, err)
			for j := range found.Items {
				if o := &found.Items[j]; !strings.HasPrefix(o.Namespace, "kube-") && o.Name != "kubernetes" {
					all[fmt.Sprintf("%s %s/%s", r.Name, o.Namespace, o.Name)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// states returns the parts of objects that a sync could change. For objects whose status
// others write, this is the generation.
func (i *installation) states(objects []*unstructured.Unstructured) map[string]string {
	i.Helper()
	all := map[string]string{}
	for _, o := range objects {
		live := o.DeepCopy()
		must(i.T, i.admin.Get(i.Context(), client.ObjectKeyFromObject(o), live))
		all[key(o)] = live.GetResourceVersion()
		if o.GetKind() == "NodeGate" || o.GetKind() == "FlowSchema" {
			all[key(o)] = fmt.Sprint(live.GetUID(), live.GetGeneration())
		}
	}
	return all
}
