// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func TestAccept(t *testing.T) {
	proving := waitingFor(agent("agent"))
	older, younger := createdAgo(2*time.Hour), createdAgo(time.Hour)
	policy := KeyPolicy{Managed: map[string]string{"nrr.example/key": "rule-1"}}
	for name, c := range map[string]struct {
		gates  []Gate
		policy KeyPolicy
		want   string
		text   string // part of the last gate's message
	}{
		"in force":                               {[]Gate{aGate("a", proving)}, policy, "a=Accepted", "in force"},
		"no evidence":                            {[]Gate{aGate("a")}, policy, "a=NoBootEvidence", "after a reboot"},
		"shared boots":                           {[]Gate{aGate("a", proving)}, KeyPolicy{SameBoot: "n1, n2 and 3 more"}, "a=NoBootEvidence", "share a boot ID (n1, n2 and 3 more)"},
		"shared boots, no evidence":              {[]Gate{aGate("a")}, KeyPolicy{SameBoot: "n1, n2"}, "a=NoBootEvidence", "after a reboot"},
		"shared boots, no evidence needed":       {[]Gate{aGate("a", proving, reclosing(never))}, KeyPolicy{SameBoot: "n1, n2"}, "a=Accepted", ""},
		"no evidence needed":                     {[]Gate{aGate("a", reclosing(never))}, policy, "a=Accepted", ""},
		"one signal with evidence is sufficient": {[]Gate{aGate("a", waitingFor(flagSignal("x"), agent("y")))}, policy, "a=Accepted", ""},
		"key managed by a rule":                  {[]Gate{aGate("a", tainting("nrr.example/key:NoSchedule"))}, policy, "a=!OwnedByNodeReadinessRule", "rule-1"},
		"key not allowed":                        {[]Gate{aGate("a")}, KeyPolicy{Allowed: allowed("z/z", "b/b:NoExecute")}, "a=!TaintKeyNotAllowed", "taint a.example/not-ready:NoSchedule: add it to the chart's allowedTaintKeys, or to --allowed-taint-keys of both 'nodegate manifests' and 'nodegate controller', and apply the manifests again (allowed now: b/b:NoExecute, z/z:NoSchedule)"},
		"key not allowed, of many":               {[]Gate{aGate("a")}, KeyPolicy{Allowed: allowed("d/d", "e/e", "c/c", "b/b")}, "a=!TaintKeyNotAllowed", "again (allowed now: b/b:NoSchedule, c/c:NoSchedule, d/d:NoSchedule and 1 more)"},
		"none allowed":                           {[]Gate{aGate("a")}, KeyPolicy{Allowed: allowed()}, "a=!TaintKeyNotAllowed", "(allowed now: none)"},
		"key allowed":                            {[]Gate{aGate("a", proving)}, KeyPolicy{Allowed: allowed("a.example/not-ready")}, "a=Accepted", ""},
		"effect not allowed":                     {[]Gate{aGate("a", proving, tainting("k:NoExecute"))}, KeyPolicy{Allowed: allowed("a", "b", "c", "k")}, "a=!TaintKeyNotAllowed", "(allowed now: k:NoSchedule, a:NoSchedule, b:NoSchedule and 1 more)"},
		"stamp not allowed":                      {[]Gate{aGate("a", proving, stamping("b/at"))}, KeyPolicy{Stamps: map[string]bool{"a/at": true}}, "a=StampNotAllowed", "not allowed the annotation b/at: add it to --allowed-stamp-annotations (now: a/at)"},
		"stamp not allowed, no evidence":         {[]Gate{aGate("a", stamping("b/at"))}, KeyPolicy{Stamps: map[string]bool{}}, "a=StampNotAllowed", "after a reboot the gate may open on outdated information; openedAtAnnotation is not written"},
		"stamp allowed":                          {[]Gate{aGate("a", proving, stamping("b/at"))}, KeyPolicy{Stamps: map[string]bool{"b/at": true}}, "a=Accepted", ""},
		"no stamp":                               {[]Gate{aGate("a", proving)}, KeyPolicy{Stamps: map[string]bool{}}, "a=Accepted", ""},
		"key of Kubernetes":                      {[]Gate{aGate("a", tainting("node.kubernetes.io/not-ready:NoSchedule"))}, policy, "a=!TaintKeyNotAllowed", "belongs to Kubernetes"},
		"key of nodes that are being set up":     {[]Gate{aGate("a", tainting("karpenter.sh/unregistered:NoSchedule"))}, policy, "a=!TaintKeyNotAllowed", "karpenter.sh/unregistered marks nodes that are being set up or shut down"},
		"key of nodes that are shut down":        {[]Gate{follower("a", tainting("node.cloudprovider.kubernetes.io/shutdown:NoSchedule"))}, policy, "a=!TaintKeyNotAllowed", "use another key"},
		"recloseTaint's key of such nodes":       {[]Gate{aGate("a", proving, recloseTainting("node.cluster.x-k8s.io/uninitialized:NoSchedule"))}, policy, "a=!TaintKeyNotAllowed", "use another key"},
		"no signals":                             {[]Gate{aGate("a", waitingFor())}, policy, "a=!InvalidSpec", "openWhen"},
		"shared taint":                           {[]Gate{aGate("a", proving, tainting("k=1:NoSchedule")), aGate("b", proving, tainting("k=1:NoSchedule"))}, policy, "a=Accepted b=Accepted", ""},
		"another effect":                         {[]Gate{aGate("a", proving, tainting("k=1:NoSchedule")), aGate("b", proving, tainting("k=2:NoExecute"))}, policy, "a=Accepted b=Accepted", ""},
		"the younger yields":                     {[]Gate{aGate("z", proving, older, tainting("k=1:NoSchedule")), aGate("a", proving, younger, tainting("k=2:NoSchedule"))}, policy, "a=!TaintConflict z=TaintConflict", ""},
		"same age: the first name wins":          {[]Gate{aGate("a", proving, tainting("k=1:NoSchedule")), aGate("b", proving, tainting("k=2:NoSchedule"))}, policy, "a=TaintConflict b=!TaintConflict", "older gate a has the taint k=1:NoSchedule"},
		"two taints":                             {[]Gate{aGate("a", proving, tainting("k:NoSchedule"), recloseTainting("l:NoSchedule"))}, KeyPolicy{Allowed: allowed("k", "l")}, "a=Accepted", ""},
		"twice the same taint":                   {[]Gate{aGate("a", proving, tainting("k=1:NoSchedule"), recloseTainting("k=1:NoSchedule"))}, policy, "a=Accepted", ""},
		"two effects of a key":                   {[]Gate{aGate("a", proving, tainting("k=1:NoSchedule"), recloseTainting("k=2:NoExecute"))}, policy, "a=Accepted", ""},
		"two values of a key":                    {[]Gate{aGate("a", proving, tainting("k=1:NoSchedule"), recloseTainting("k=2:NoSchedule"))}, policy, "a=!InvalidSpec", "recloseTaint must differ from taint in more than its value"},
		"recloseTaint's key managed by a rule":   {[]Gate{aGate("a", proving, recloseTainting("nrr.example/key:NoSchedule"))}, policy, "a=!OwnedByNodeReadinessRule", "rule-1"},
		"recloseTaint's key not allowed": {[]Gate{aGate("a", proving, tainting("k:NoSchedule"), recloseTainting("l:NoSchedule"))}, KeyPolicy{Allowed: allowed("k")},
			"a=!TaintKeyNotAllowed", "taint l:NoSchedule: add it to the chart's allowedTaintKeys"},
		"recloseTaint's key of Kubernetes":    {[]Gate{aGate("a", proving, recloseTainting("node.kubernetes.io/not-ready:NoSchedule"))}, policy, "a=!TaintKeyNotAllowed", "belongs to Kubernetes"},
		"recloseTaint detaches volumes":       {[]Gate{aGate("a", proving, recloseTainting("node.kubernetes.io/out-of-service:NoExecute"))}, policy, "a=!TaintKeyNotAllowed", "belongs to Kubernetes"},
		"recloseTaint with closeWhen":         {[]Gate{follower("a", recloseTainting("l:NoSchedule"))}, policy, "a=!InvalidSpec", "remove recloseTaint"},
		"recloseTaint conflicts with a taint": {[]Gate{aGate("a", proving, older, tainting("k=1:NoSchedule")), aGate("b", proving, younger, recloseTainting("k=2:NoSchedule"))}, policy, "a=TaintConflict b=!TaintConflict", ""},
		"taint conflicts with a recloseTaint": {[]Gate{aGate("a", proving, older, recloseTainting("k=1:NoSchedule")), aGate("b", proving, younger, tainting("k=2:NoSchedule"))}, policy, "a=TaintConflict b=!TaintConflict", ""},
		"two recloseTaints conflict":          {[]Gate{aGate("a", proving, older, recloseTainting("k=1:NoSchedule")), aGate("b", proving, younger, recloseTainting("k=2:NoSchedule"))}, policy, "a=TaintConflict b=!TaintConflict", ""},
		"swapped taints with the same values": {[]Gate{aGate("a", proving, tainting("k=1:NoSchedule"), recloseTainting("l=1:NoSchedule")), aGate("b", proving, tainting("l=1:NoSchedule"), recloseTainting("k=1:NoSchedule"))}, policy, "a=Accepted b=Accepted", ""},
		"a gate rejected for one taint claims neither": {[]Gate{aGate("a", older, recloseTainting("nrr.example/key:NoSchedule"), tainting("k=1:NoSchedule")), aGate("b", proving, younger, tainting("k=2:NoSchedule"))}, policy,
			"a=!OwnedByNodeReadinessRule b=Accepted", ""},
		"paused":                             {[]Gate{aGate("a", inPause, stamping("b/at"))}, KeyPolicy{Stamps: map[string]bool{}}, "a=Paused", "the gate is paused: it neither opens nor closes on any node, and new nodes are not closed; none of its signals"},
		"paused, key not allowed":            {[]Gate{aGate("a", inPause)}, KeyPolicy{Allowed: allowed()}, "a=!TaintKeyNotAllowed", ""},
		"in dry run":                         {[]Gate{aGate("a", inDryRun)}, policy, "a=DryRun", "the gate is in dry run: it does not change nodes, and new nodes are not closed; none of its signals"},
		"dry run, key not allowed":           {[]Gate{aGate("a", proving, inDryRun)}, KeyPolicy{Allowed: allowed()}, "a=DryRun", "; with mode Enforce it would not be accepted: the administrator has not allowed the taint a.example/not-ready:NoSchedule"},
		"dry run, key managed by a rule":     {[]Gate{aGate("a", inDryRun, tainting("nrr.example/key:NoSchedule"))}, policy, "a=DryRun", "it would not be accepted: the NodeReadinessRule rule-1"},
		"dry run, key of Kubernetes":         {[]Gate{aGate("a", inDryRun, tainting("node.kubernetes.io/not-ready:NoSchedule"))}, policy, "a=!TaintKeyNotAllowed", "belongs to Kubernetes"},
		"dry run without signals":            {[]Gate{aGate("a", inDryRun, waitingFor())}, policy, "a=!InvalidSpec", ""},
		"a gate does not yield to a dry run": {[]Gate{aGate("a", proving, older, inDryRun, tainting("k=1:NoSchedule")), aGate("b", proving, younger, tainting("k=2:NoSchedule"))}, policy, "a=DryRun b=Accepted", ""},
		"a dry run yields to a dry run":      {[]Gate{aGate("a", proving, older, inDryRun, tainting("k=1:NoSchedule")), aGate("b", proving, younger, inDryRun, tainting("k=2:NoSchedule"))}, policy, "a=DryRun b=!TaintConflict", ""},
		"a dry run yields to a gate":         {[]Gate{aGate("a", proving, older, tainting("k=1:NoSchedule")), aGate("b", proving, younger, inDryRun, tainting("k=2:NoSchedule"))}, policy, "a=Accepted b=!TaintConflict", ""},
		"a gate yields to a paused gate":     {[]Gate{aGate("a", proving, older, inPause, tainting("k=1:NoSchedule")), aGate("b", proving, younger, tainting("k=2:NoSchedule"))}, policy, "a=Paused b=!TaintConflict", ""},
		"a rejected gate claims nothing": {[]Gate{aGate("a", older, waitingFor(), tainting("k=1:NoSchedule")), aGate("b", proving, younger, tainting("k=2:NoSchedule"))}, policy,
			"a=!InvalidSpec b=Accepted", ""},
		"a gate yields to one that is still being compiled": {[]Gate{aGate("a", older, broken, waitingFor(), tainting("k=1:NoSchedule")), aGate("b", proving, younger, tainting("k=2:NoSchedule"))}, policy,
			"a=!InvalidSpec b=!TaintConflict", ""},
		"but not if its key is not allowed": {[]Gate{aGate("a", older, broken, waitingFor(), tainting("nrr.example/key=1:NoSchedule")), aGate("b", proving, younger, inDryRun, tainting("nrr.example/key=2:NoSchedule"))}, policy,
			"a=!InvalidSpec b=DryRun", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // in either order
				got := Accept(c.gates, c.policy)
				var texts []string
				for name, a := range got {
					mark := "="
					if !a.Accepted {
						mark = "=!"
					}
					texts = append(texts, name+mark+a.Reason)
				}
				slices.Sort(texts)
				if text := strings.Join(texts, " "); text != c.want {
					t.Errorf("got %s, want %s", text, c.want)
				}
				if a := got[c.gates[len(c.gates)-1].Name]; !strings.Contains(a.Message, c.text) && len(c.gates) == 1 {
					t.Errorf("message %q does not contain %q", a.Message, c.text)
				}
				slices.Reverse(c.gates)
			}
		})
	}
}

// If two gates specify conflicting values, the message of each names the other one,
// even among hundreds of gates.
func TestTaintConflictIsReportedOnBoth(t *testing.T) {
	proving := waitingFor(agent("agent"))
	older := aGate("older", proving, createdAgo(2*time.Hour), tainting("k=1:NoSchedule"))
	younger := func(name, taint string) Gate { return aGate(name, proving, createdAgo(time.Hour), tainting(taint)) }
	hundreds := []Gate{older}
	for i := range 200 {
		hundreds = append(hundreds, younger(fmt.Sprintf("g%03d", i), fmt.Sprintf("k=%d:NoSchedule", i+2)))
	}
	for name, c := range map[string]struct {
		gates []Gate
		on    string
		want  string
	}{
		"on the younger": {[]Gate{younger("b", "k=2:NoSchedule"), older}, "b",
			"the older gate older has the taint k=1:NoSchedule, and a node cannot carry k=2:NoSchedule as well: use the same value, or another key"},
		"on the older": {[]Gate{younger("b", "k=2:NoSchedule"), older}, "older",
			"the gate is in force; the younger gate b specifies the conflicting taint k=2:NoSchedule and is not accepted"},
		"no value is another value": {[]Gate{younger("b", "k:NoSchedule"), older}, "older",
			"the gate is in force; the younger gate b specifies the conflicting taint k:NoSchedule and is not accepted"},
		"hundreds: the first is named": {hundreds, "older",
			"the gate is in force; the younger gate g000 specifies the conflicting taint k=2:NoSchedule and is not accepted, nor are 199 other gates with conflicting values"},
		"no conflict with an equal value":                     {[]Gate{older, younger("b", "k=1:NoSchedule")}, "older", "the gate is in force"},
		"no conflict with a gate rejected for another reason": {[]Gate{older, aGate("b", waitingFor(), tainting("k=2:NoSchedule"))}, "older", "the gate is in force"},
	} {
		for range 2 { // in either order
			if got := Accept(c.gates, KeyPolicy{})[c.on].Message; got != c.want {
				t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
			}
			slices.Reverse(c.gates)
		}
	}
}

// Every reason has a message without an unused placeholder.
func TestMessages(t *testing.T) {
	for reason := range messages {
		r := Reading{Reason: reason, Subject: "SUBJECT"}
		if text := r.Message(); text == "" || strings.Contains(text, "%") {
			t.Errorf("%s: %q", reason, text)
		}
	}
	hostile := Reading{Reason: v1alpha1.ReadingDiffers, Subject: "condition Bad=\x1b[2J\n\"x\""}
	if text := hostile.Message(); text != `condition Bad=\x1b[2J\n"x" does not match` {
		t.Errorf("text from a node is printed as %q", text)
	}
	v := Verdict{Blocked: v1alpha1.ReadingNodeSilent}
	if text := v.Obstacle().Message(); text != "the node is unreachable (Ready is Unknown)" {
		t.Error(text)
	}
}
