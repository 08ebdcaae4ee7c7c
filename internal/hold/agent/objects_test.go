// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
	"github.com/nodegate/nodegate/internal/kube/jsonclient"
)

// The agent's names are those of the API.
func TestNames(t *testing.T) {
	for own, api := range map[string]string{
		groupName + "/" + version: v1alpha1.GroupVersion.String(),
		recordAnnotationPrefix:    v1alpha1.RecordAnnotationPrefix,
		stateClosed:               v1alpha1.StateClosed,
		stateOpen:                 v1alpha1.StateOpen,
		modeDryRun:                string(v1alpha1.ModeDryRun),
		modePaused:                string(v1alpha1.ModePaused),
		recloseNever:              string(v1alpha1.RecloseNever),
		bypassedHold:              string(v1alpha1.BypassedHold),
		conditionAccepted:         v1alpha1.ConditionAccepted,
		shutdownCondition:         string(corev1.NodeGracefulNodeShutdownInProgress),
		shutdownMessagePrefix:     v1alpha1.ShutdownMessagePrefix,
		conditionTrue:             string(metav1.ConditionTrue),
		conditionFalse:            string(metav1.ConditionFalse),
		reasonNotFound:            string(metav1.StatusReasonNotFound),
		effectPreferNoSchedule:    string(corev1.TaintEffectPreferNoSchedule),
		operatorEqual:             string(corev1.TolerationOpEqual),
		operatorExists:            string(corev1.TolerationOpExists),
		restartPolicyAlways:       string(corev1.RestartPolicyAlways),
	} {
		if own != api {
			t.Errorf("%q is %q in the API", own, api)
		}
	}
	if defaultHoldSeconds != v1alpha1.DefaultHoldSeconds {
		t.Errorf("the default is %d in the API", v1alpha1.DefaultHoldSeconds)
	}
	if want := "/apis/" + v1alpha1.Resource.Group + "/" + v1alpha1.Resource.Version + "/" + v1alpha1.Resource.Resource; gatesPath != want {
		t.Errorf("the path is %s, want %s", gatesPath, want)
	}
}

// A toleration tolerates the same taints as in the core.
func TestTolerates(t *testing.T) {
	texts := func(all ...string) []string { return append(all, "") }
	tolerated := 0
	for _, key := range texts("a", "b") {
		for _, value := range texts("v", "w") {
			for _, operator := range texts("Equal", "Exists", "Lt", "Gt", "unknown") {
				for _, effect := range texts("NoSchedule", "NoExecute") {
					for _, of := range []taint{{"a", "v", "NoSchedule"}, {"a", "", "NoSchedule"}, {"b", "w", "NoExecute"}, {"b", "5", "PreferNoSchedule"}} {
						own := toleration{Key: key, Operator: operator, Value: value, Effect: effect}
						api := gate.BoundPod{Tolerations: []corev1.Toleration{{Key: key, Operator: corev1.TolerationOperator(operator), Value: value, Effect: corev1.TaintEffect(effect)}}}
						want := api.Tolerates(v1alpha1.Taint{Key: of.Key, Value: of.Value, Effect: corev1.TaintEffect(of.Effect)})
						if got := own.tolerates(&of); got != want {
							t.Errorf("%+v tolerates %+v: %v, in the core %v", own, of, got, want)
						}
						if want {
							tolerated++
						}
					}
				}
			}
		}
	}
	if tolerated == 0 {
		t.Error("no toleration tolerates any taint")
	}
}

// Objects of the API are decoded into the fields that the agent reads.
func TestDecode(t *testing.T) {
	var n node
	decode(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7", Annotations: map[string]string{"a": "b"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "m"}}},
	}, &n)
	wantNode := node{nodeMetadata: nodeMetadata{Metadata: jsonclient.Metadata{Name: "n", UID: "u", ResourceVersion: "7"}, Annotations: map[string]string{"a": "b"}}}
	wantNode.Status.Conditions = []condition{{"Ready", "True", "m"}}
	if diff := cmp.Diff(wantNode, n, cmp.AllowUnexported(node{})); diff != "" {
		t.Error(diff)
	}

	var p pod
	deleted := metav1.Now()
	decode(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7", DeletionTimestamp: &deleted},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Tolerations: []corev1.Toleration{
			{Key: "k", Operator: corev1.TolerationOpEqual, Value: "v", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5))},
		}, InitContainers: []corev1.Container{{RestartPolicy: new(corev1.ContainerRestartPolicyNever)}}, Containers: []corev1.Container{
			{RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}},
		}},
	}, &p)
	wantPod := pod{Metadata: jsonclient.Metadata{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7", DeletionTimestamp: deleted.UTC().Format("2006-01-02T15:04:05Z")}}
	wantPod.Spec.RestartPolicy, wantPod.Spec.Tolerations = "Never", []toleration{{"k", "Equal", "v", "NoExecute"}}
	wantPod.Spec.InitContainers, wantPod.Spec.Containers = true, true
	if diff := cmp.Diff(wantPod, p); diff != "" {
		t.Error(diff)
	}

	var g nodeGate
	api := v1alpha1.NodeGate{
		ObjectMeta: metav1.ObjectMeta{Name: "g", ResourceVersion: "7"},
		Spec: v1alpha1.NodeGateSpec{
			Mode: v1alpha1.ModePaused, ReclosePolicy: v1alpha1.RecloseOnRegression, BypassedPods: v1alpha1.BypassedHold, HoldSeconds: new(int32(5)),
			Taint: v1alpha1.Taint{Key: "k", Value: "v", Effect: "NoSchedule"}, RecloseTaint: &v1alpha1.Taint{Key: "k", Effect: "NoExecute"},
		},
		Status: v1alpha1.NodeGateStatus{Conditions: []metav1.Condition{{Type: "Accepted", Status: "False", Message: "m"}}},
	}
	decode(t, &api, &g)
	wantGate := nodeGate{
		Metadata: jsonclient.Metadata{Name: "g", ResourceVersion: "7"},
		Spec: nodeGateSpec{
			Mode: "Paused", ReclosePolicy: "OnRegression", BypassedPods: "Hold", HoldSeconds: new(int32(5)),
			Taint: taint{"k", "v", "NoSchedule"}, RecloseTaint: &taint{"k", "", "NoExecute"},
		},
		Conditions: []condition{{"Accepted", "False", "m"}},
	}
	if diff := cmp.Diff(wantGate, g, cmp.AllowUnexported(nodeGate{}), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	for i, own := range g.taints() {
		if of := api.Spec.Taints()[i]; *own != (taint{of.Key, of.Value, string(of.Effect)}) || len(g.taints()) != len(api.Spec.Taints()) {
			t.Errorf("the taints are %+v", g.taints())
		}
	}
}

func decode(t *testing.T, object, into any) {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// A gate that was stored by another version is unreadable to the agent if a field has changed
// that it reads, and never readable if the controller's metadata are not.
func TestDecodeStoredGates(t *testing.T) {
	const taint = `"taint":{"key":"a","effect":"NoSchedule"}`
	for raw, want := range map[string]struct{ unreadable, controller bool }{
		`{"metadata":{"name":"g"},"spec":{` + taint + `}}`:                                {false, false},
		`{"metadata":{"name":"g"},"spec":{` + taint + `},"status":7}`:                     {false, false},
		`{"metadata":{"name":"g"},"spec":{` + taint + `,"colour":"red"}}`:                 {false, false},
		`{"metadata":{"name":"g"},"spec":{` + taint + `,"holdSeconds":"5s"}}`:             {true, true},
		`{"metadata":{"name":"g"},"spec":{` + taint + `,"holdSeconds":4294967296}}`:       {true, true},
		`{"metadata":{"name":"g"},"spec":{` + taint + `,"mode":5}}`:                       {true, true},
		`{"metadata":{"name":"g"},"spec":{"taint":"a:NoSchedule"}}`:                       {true, true},
		`{"metadata":{"name":"g"},"spec":[]}`:                                             {true, true},
		`{"metadata":{"name":"g"},"spec":{` + taint + `,"timing":[]}}`:                    {false, true}, // the controller does not accept it
		`{"metadata":{"name":"g"},"spec":{` + taint + `,"mode":5},"status":{"nodes":[]}}`: {true, true},
	} {
		var own nodeGate
		var api gateclient.StoredGate
		if err := json.Unmarshal([]byte(raw), &own); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if err := json.Unmarshal([]byte(raw), &api); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if own.Name != "g" || own.unreadable != want.unreadable || (api.ReadError != "") != want.controller {
			t.Errorf("%s: %+v, and for the controller %q", raw, own, api.ReadError)
		}
	}
	for _, raw := range []string{`{"metadata":[]}`, `[]`, `7`} {
		if json.Unmarshal([]byte(raw), new(nodeGate)) == nil {
			t.Errorf("%s is accepted", raw)
		}
	}
}

// The agent reads each record that the core reads, and as the core does.
func TestRecords(t *testing.T) {
	records := []string{
		`{"state":"Closed","boot":"b","taint":"k=v:NoSchedule","since":"2026-01-01T00:00:00Z","digest":[],"overdue":true}`,
		`{ "state": "Open", "boot": "\u0062" }`, `{"STATE":"Open","Boot":"b"}`, `{"state":"Open","state":"Closed","taint":"k:NoSchedule"}`,
		`{"state":"Closed","since":"?"}`, `{"state":"Open","boot":7}`, `{"state":"Open"}{}`, `{`, `[]`, `null`, ``,
	}
	for _, state := range []string{"Open", "Closed", "Ajar", ""} {
		for _, override := range []string{"Open", "Closed", "Ajar", ""} {
			for _, boot := range []string{"b", "c", ""} {
				for _, taint := range []string{"k:NoSchedule", "k", ""} {
					records = append(records, fmt.Sprintf(`{"state":%q,"boot":%q,"taint":%q,"override":%q}`, state, boot, taint, override))
				}
			}
		}
	}
	read := 0
	for _, raw := range records {
		core, coreErr := gate.ParseRecord(raw)
		own, err := parseRecord(raw)
		if coreErr != nil {
			continue // the core checks more
		}
		read++
		if err != nil {
			t.Errorf("%s: the agent cannot read it: %v", raw, err)
		}
		open := core.Effective() == v1alpha1.StateOpen
		if own.State != core.State || own.Boot != core.Boot || own.openIn("b") != (open && core.Boot == "b") || own.openIn(core.Boot) != open {
			t.Errorf("%s: read as %+v, by the core as %+v", raw, own, core)
		}
	}
	if read == 0 {
		t.Error("the core reads none of them")
	}
	for _, raw := range []string{``, `{`, `[]`, `{"state":"Ajar"}`, `{"state":"Open","override":"Open"}`, `{"state":"Closed","override":"Ajar"}`} {
		if _, err := parseRecord(raw); err == nil {
			t.Errorf("%s is accepted", raw)
		}
	}
}
