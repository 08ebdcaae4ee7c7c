// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/report"
	"github.com/nodegate/nodegate/internal/timeline"
)

// The timeline and the report of a real node, from the data of the API server, a kubelet and
// nodegate.
func TestTimelineAndReport(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k, other := e.kubelet("n1"), e.kubelet("n2")
	k.register()
	other.register()
	k.report(corev1.ConditionTrue, "")
	pod := k.daemonPod(ds)
	admin := e.cluster.Admin()
	e.tells(e.ask(admin, "timeline", "n1"), 0, "A gate holds it.", "agent: closed for", pod.Name+" is not ready")
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	web := k.daemonPod(ds, func(p *corev1.Pod) { p.Name, p.OwnerReferences, p.Labels = "web", nil, nil })
	web.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	e.must(e.admin.Status().Update(t.Context(), web))

	var line timeline.Timeline
	e.must(json.Unmarshal([]byte(e.ask(admin, "timeline", "n1", "-o", "json").out), &line))
	created := k.node().CreationTimestamp.Time
	switch g := line.Gates[0]; {
	case !line.Created.Equal(created), !line.Ready.Known(), !line.Opened.Known(), line.Opened.At.Before(created):
		t.Errorf("node n1, created at %s: created %s, ready %+v, opened %+v", created, line.Created, line.Ready, line.Opened)
	case g.Gate != "agent", g.State != v1alpha1.StateOpen, !g.Signals[0].Held.Known(), g.Signals[0].Pod == nil:
		t.Errorf("the timeline of the gate is %+v", g)
	}
	e.tells(e.ask(admin, "timeline", "n1"), 0, "Its last gate opened after", web.Namespace+"/web")
	e.tells(e.ask(admin, "timeline", "n3"), 2, `node "n3" not found; did you mean`)

	var r report.Report
	e.must(json.Unmarshal([]byte(e.ask(admin, "report", "-o", "json").out), &r))
	if r.Fleet.Nodes != 2 || r.Fleet.Held != 1 || r.Fleet.Opened.Count != 1 || r.Nodes[0].Node != "n2" || len(r.Unread) > 0 {
		t.Errorf("the report has fleet %+v, nodes %+v, unread %v", r.Fleet, r.Nodes, r.Unread)
	}
	e.tells(e.ask(admin, "report"), 0, "1 of 2 nodes is held", "agent/")
	file := filepath.Join(t.TempDir(), "report.html")
	e.tells(e.ask(admin, "report", "-o", "html", "--output-file", file), 0)
	page, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(page), "1 of 2 nodes is held") {
		t.Errorf("the page is %d bytes: %v", len(page), err)
	}

	// With fewer permissions, the output names what could not be read.
	podless := e.may("podless-report", reads("", "nodes"), reads(v1alpha1.GroupName, "nodegates"), reads("apps", "daemonsets"))
	e.tells(e.ask(podless, "timeline", "n1"), 0, "unknown", `cannot list resource "pods"`)
	e.tells(e.ask(podless, "report"), 0, `cannot list resource "pods"`)
	nodeless := e.may("nodeless-report", reads(v1alpha1.GroupName, "nodegates"))
	e.tells(e.ask(nodeless, "report"), 2, `cannot list resource "nodes"`)
}
