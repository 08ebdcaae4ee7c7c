// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// everything is a fake API server in which every object exists until it is deleted. Patches are
// accepted, and change nothing.
type everything struct {
	node corev1.Node
	// lists contains the names of the objects in the lists that are read, by path.
	lists   map[string][]string
	deleted map[string]bool
	// writes are the methods of all writes, and the ends of their paths.
	writes []string
}

func (e *everything) answer(w http.ResponseWriter, r *http.Request) {
	segments := strings.Split(r.URL.Path, "/")
	name := segments[len(segments)-1]
	if e.deleted[r.URL.Path] {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet {
		e.writes = append(e.writes, r.Method+" "+strings.Join(segments[len(segments)-2:], "/"))
	}
	e.deleted[r.URL.Path] = r.Method == http.MethodDelete
	names, isList := e.lists[r.URL.Path]
	var object any
	switch {
	case r.URL.Path == "/api" || r.URL.Path == "/apis": // no kinds that nodegate does not know
		object = map[string]any{}
	case r.URL.Path == "/api/v1/nodes":
		object = &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: []corev1.Node{e.node}}
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		object = &e.node
	case isList:
		list := &metav1.PartialObjectMetadataList{}
		for _, name := range names {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		list.TypeMeta = requested(r, "PartialObjectMetadataList")
		object = list
	default:
		object = &metav1.PartialObjectMetadata{TypeMeta: requested(r, "PartialObjectMetadata"), ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // never fails
}

// requested returns a kind if the client requests metadata only. Other clients know the kind.
func requested(r *http.Request, kind string) metav1.TypeMeta {
	if strings.Contains(r.Header.Get("Accept"), "as="+kind+";") {
		return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: kind}
	}
	return metav1.TypeMeta{}
}

// Nodes are released before anything is deleted that could open gates, and again when nothing can close
// them any more. No permission outlasts the policy that confines it.
func TestOrder(t *testing.T) {
	want := []string{
		"DELETE mutatingadmissionpolicybindings/nodegate-birth", "DELETE mutatingwebhookconfigurations/nodegate-birth",
		"DELETE nodegates/g",
		"PATCH nodes/n1",
		"DELETE deployments/nodegate",
		"PATCH nodes/n1",
		"DELETE validatingadmissionpolicybindings/nodegate-parameters", "DELETE validatingadmissionpolicies/nodegate-parameters",
		"DELETE podtemplates/nodegate-birth", "DELETE podtemplates/nodegate-tolerations",
		"DELETE daemonsets/nodegate-agent", "DELETE clusterrolebindings/nodegate-agent", "DELETE validatingadmissionpolicies/nodegate-agent",
		"PATCH n1/status",
		"DELETE rolebindings/me", "DELETE clusterrolebindings/nodegate",
		"DELETE validatingadmissionpolicies/nodegate-confinement", "DELETE mutatingadmissionpolicybindings/nodegate-birth-anchor",
		"DELETE customresourcedefinitions/nodegates.nodegate.dev",
		"DELETE namespaces/here",
	}
	synctest.Test(t, func(t *testing.T) {
		e := &everything{node: closedNode(), deleted: make(map[string]bool), lists: map[string][]string{
			"/apis/nodegate.dev/v1alpha1/nodegates":     {"g"},
			"/apis/apps/v1/namespaces/here/deployments": {"nodegate"},
			"/apis/apps/v1/namespaces/here/daemonsets":  {"nodegate-image-warm-up"},
			"/apis/apps/v1/daemonsets":                  {v1alpha1.AppAgent},
			"/api/v1/serviceaccounts":                   {v1alpha1.AppAgent},
			"/api/v1/resourcequotas":                    {v1alpha1.AppAgent},
			"/api/v1/namespaces/here/pods":              nil,
		}}
		e.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeGracefulNodeShutdownInProgress, Status: corev1.ConditionTrue, Message: v1alpha1.ShutdownMessagePrefix + "this boot"}}
		config := &rest.Config{Transport: kubetest.Transport(e.answer)}
		var out strings.Builder
		if err := Run(t.Context(), config, Options{Namespace: "here", ServiceAccount: "me", Out: &out}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "nodegate-birth-anchor deleted\n  (before you install nodegate again, restart all API servers: ") {
			t.Errorf("printed:\n%s", &out)
		}
		got := slices.DeleteFunc(e.writes, func(write string) bool { return !slices.Contains(want, write) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
