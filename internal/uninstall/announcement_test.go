// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"encoding/json"
	"errors"
	"io"
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
	"github.com/nodegate/nodegate/internal/release"
)

// nodesAPI is a fake API server with Nodes. Patches remove the condition that announces a shutdown.
type nodesAPI struct {
	nodes []corev1.Node
	// conflicts and denied are the nodes whose first patch fails because the Node has changed, and
	// whose patches are always denied.
	conflicts, denied []string
	// replacedOnceListed and replacedOnConflict are the nodes whose condition another writer replaces
	// after the nodes have been listed, and before a patch that therefore fails.
	replacedOnceListed, replacedOnConflict []string
	// patches contains the patched nodes, and their patches.
	patches []string
	query   string
}

func (a *nodesAPI) answer(w http.ResponseWriter, r *http.Request) {
	name, _ := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/status"), "/api/v1/nodes/")
	at := slices.IndexFunc(a.nodes, func(n corev1.Node) bool { return n.Name == name })
	var object any
	switch {
	case r.URL.Path == "/api/v1/nodes":
		object = &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: slices.Clone(a.nodes)}
		a.replace(a.replacedOnceListed)
	case at < 0:
		http.NotFound(w, r)
		return
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body) // never fails
		a.patches, a.query = append(a.patches, r.URL.Path+" "+string(body)), r.URL.RawQuery
		if code := a.refusal(name); code != 0 {
			http.Error(w, http.StatusText(code), code)
			return
		}
		object = &a.nodes[at]
	default:
		object = &a.nodes[at]
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // never fails
}

// refusal returns the status of a patch that fails, and otherwise 0.
func (a *nodesAPI) refusal(name string) int {
	if slices.Contains(a.denied, name) {
		return http.StatusForbidden
	}
	if i := slices.Index(a.conflicts, name); i >= 0 {
		a.conflicts = slices.Delete(a.conflicts, i, i+1)
		a.replace(a.replacedOnConflict)
		return http.StatusConflict
	}
	return 0
}

// anothers is the message of a condition that is not the agent's.
const anothers = "another writer's"

// replace replaces the conditions of nodes.
func (a *nodesAPI) replace(names []string) {
	for i := range a.nodes {
		if n := &a.nodes[i]; slices.Contains(names, n.Name) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeGracefulNodeShutdownInProgress, Status: corev1.ConditionTrue, Message: anothers}}
		}
	}
}

// The condition with which the agent has announced a shutdown is removed, because the agent no longer
// does so. A condition of another writer stays, also if it has replaced the agent's meanwhile.
func TestRemoveAnnouncements(t *testing.T) {
	node := func(name, message string) corev1.Node {
		n := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if message != "" {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeGracefulNodeShutdownInProgress, Status: corev1.ConditionTrue, Message: message})
		}
		return n
	}
	patch := func(node string) string {
		return "/api/v1/nodes/" + node + `/status {"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"type":"GracefulNodeShutdownInProgress","$patch":"delete"}]}}`
	}
	const removed = ": condition GracefulNodeShutdownInProgress removed"
	for name, c := range map[string]struct {
		dry        release.DryRun
		conflicts  []string
		denied     []string
		onceListed []string
		onConflict []string
		patches    []string
		out        string
		incomplete bool
	}{
		"removed":                      {patches: []string{patch("n2"), patch("n4")}, out: "node/n2" + removed + "\nnode/n4" + removed + "\n"},
		"changed meantime":             {conflicts: []string{"n2"}, patches: []string{patch("n2"), patch("n2"), patch("n4")}, out: "node/n2" + removed + "\nnode/n4" + removed + "\n"},
		"replaced once listed":         {onceListed: []string{"n2"}, patches: []string{patch("n4")}, out: "node/n4" + removed + "\n"},
		"replaced meantime":            {conflicts: []string{"n2"}, onConflict: []string{"n2"}, patches: []string{patch("n2"), patch("n4")}, out: "node/n4" + removed + "\n"},
		"replaced in a client dry run": {dry: release.DryRunClient, onceListed: []string{"n2"}, out: "node/n4" + removed + " (dry run)\n"},
		"denied": {denied: []string{"n2"}, patches: []string{patch("n2"), patch("n4")}, incomplete: true,
			out: "node/n2: the condition GracefulNodeShutdownInProgress could not be removed: …\nnode/n4" + removed + "\n"},
		"client dry run": {dry: release.DryRunClient, out: "node/n2" + removed + " (dry run)\nnode/n4" + removed + " (dry run)\n"},
		"server dry run": {dry: release.DryRunServer, patches: []string{patch("n2"), patch("n4")}, out: "node/n2" + removed + " (server dry run)\nnode/n4" + removed + " (server dry run)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const agents = v1alpha1.ShutdownMessagePrefix
				a := &nodesAPI{
					nodes:     []corev1.Node{node("n1", ""), node("n2", agents+"this boot"), node("n3", anothers), node("n4", agents+"a former boot")},
					conflicts: c.conflicts, denied: c.denied, replacedOnceListed: c.onceListed, replacedOnConflict: c.onConflict,
				}
				var out strings.Builder
				u := uninstallerOf(a.answer)
				u.Out, u.DryRun = &out, c.dry
				if err := u.removeAnnouncements(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.patches, a.patches); diff != "" {
					t.Error(diff)
				}
				before, after, _ := strings.Cut(c.out, "…")
				if got := out.String(); !strings.HasPrefix(got, before) || !strings.HasSuffix(got, after) || u.incomplete != c.incomplete {
					t.Errorf("output:\n%s\nincomplete: %t", got, u.incomplete)
				}
				if dry := strings.Contains(a.query, "dryRun=All"); dry != (c.dry == release.DryRunServer) {
					t.Errorf("query %q", a.query)
				}
			})
		})
	}
}

// If only an announcement could not be removed, all nodes have been released, and running the command
// again removes it.
func TestAnnouncementStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "7"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeGracefulNodeShutdownInProgress, Status: corev1.ConditionTrue, Message: v1alpha1.ShutdownMessagePrefix + "this boot"}}
		a := &nodesAPI{nodes: []corev1.Node{n}, denied: []string{"n1"}}
		err := Run(t.Context(), &rest.Config{Transport: kubetest.Transport(a.answer)}, Options{Namespace: "here", ServiceAccount: "me", Out: io.Discard})
		if want := "some nodes could not be cleaned up: fix the errors above, and run the command again"; !errors.Is(err, ErrIncomplete) || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	})
}
