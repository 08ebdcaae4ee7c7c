// SPDX-License-Identifier: Apache-2.0

package mutants

import "github.com/nodegate/nodegate/e2e/judge"

// unconfined restricts the confinement policy to dry runs, so that it matches only the
// probe that verifies it.
var unconfined = Edit{
	"internal/admission/guards.yaml",
	"expression: request.userInfo.username == {{ username }}\n  variables:\n  - name: allowed\n    expression: |-\n      {{ allowedTaints }}\n  - name: stamps",
	"expression: request.userInfo.username == {{ username }} && request.?dryRun.orValue(false)\n  variables:\n  - name: allowed\n    expression: |-\n      {{ allowedTaints }}\n  - name: stamps",
}

// All contains all mutants. A test verifies that the source contains each fragment
// exactly once.
var All = []Mutant{
	// Tests in patches.
	{
		Name:   "patches do not test the Node's UID",
		Edits:  []Edit{{"internal/kube/write/patch.go", "guard := []operation{test(uidPath, n.UID)}", "guard := []operation{}"}},
		Breaks: judge.RuleOpening, Plays: []string{"race: node"},
	},
	{
		Name:   "openings do not test the boot ID",
		Edits:  []Edit{{"internal/kube/write/patch.go", "if d.Opens() {", "if false {"}},
		Breaks: judge.RuleOpening, Plays: []string{"race: boot"},
	},
	{
		Name:   "patches do not test the taint at its index",
		Edits:  []Edit{{"internal/kube/write/patch.go", "ops = append(ops, testTaint(path, t)...)", ""}, unconfined},
		Breaks: judge.RuleForeign, Plays: []string{"race: taints"},
	},
	{
		Name:   "a first taint erases others",
		Edits:  []Edit{{"internal/kube/write/patch.go", "test(taintsPath, null), add(taintsPath, added)", "add(taintsPath, added)"}, unconfined},
		Breaks: judge.RuleForeign, Plays: []string{"race: no taints"},
	},
	{
		Name:   "a first annotation erases others",
		Edits:  []Edit{{"internal/kube/write/patch.go", "test(annotationsPath, null), add(annotationsPath, a.created)", "add(annotationsPath, a.created)"}, unconfined},
		Breaks: judge.RuleForeign, Plays: []string{"race: annotation"},
	},
	{
		Name:   "patches do not test the override on which they are based",
		Edits:  []Edit{{"internal/kube/write/patch.go", "if override, overridden := n.Overrides[name]; overridden {", "if override, overridden := n.Overrides[name]; overridden && false {"}},
		Breaks: judge.RuleOpening, Plays: []string{"race: override"},
	},
	{
		Name:   "taints are compared by key only",
		Edits:  []Edit{{"internal/kube/write/patch.go", "return other.Key == t.Key && other.Effect == t.Effect", "return other.Key == t.Key"}},
		Breaks: judge.RuleQuiet, Plays: []string{"same key"},
	},

	// Evidence.
	{
		Name:   "terminating pods count",
		Edits:  []Edit{{"internal/kube/feed/pods.go", "if o.DeletionTimestamp != nil {", "if false {"}},
		Breaks: judge.RuleOpening, Plays: []string{"bad daemons"},
	},
	{
		Name:   "mirror pods count",
		Edits:  []Edit{{"internal/kube/feed/pods.go", "_, p.Mirror = o.Annotations[corev1.MirrorPodAnnotationKey]", "p.Mirror = false"}},
		Breaks: judge.RuleOpening, Plays: []string{"bad daemons"},
	},
	{
		Name:   "finished pods count",
		Edits:  []Edit{{"internal/kube/feed/pods.go", "o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed", "o.Status.Phase == corev1.PodFailed"}},
		Breaks: judge.RuleOpening, Plays: []string{"bad daemons"},
	},
	{
		Name:   "pods not created by the DaemonSet controller count",
		Edits:  []Edit{{"internal/kube/feed/pods.go", `o.Labels[appsv1.ControllerRevisionHashLabelKey] == "" || o.Labels[v1alpha1.DaemonPodLabel] == ""`, `o.Labels[appsv1.ControllerRevisionHashLabelKey] == "" && o.Labels[v1alpha1.DaemonPodLabel] == ""`}},
		Breaks: judge.RuleOpening, Plays: []string{"bad daemons"},
	},
	{
		Name:   "pods that are not ready count",
		Edits:  []Edit{{"internal/kube/feed/pods.go", "p.Ready, p.ReadySince = c.Status == corev1.ConditionTrue,", "p.Ready, p.ReadySince = c.Status != corev1.ConditionUnknown,"}},
		Breaks: judge.RuleOpening, Plays: []string{"bad daemons"},
	},
	{
		Name:   "new containers are not distinguished from old ones",
		Edits:  []Edit{{"internal/kube/feed/pods.go", "ids = append(ids, o.Status.ContainerStatuses[i].ContainerID)", "ids = append(ids, o.Status.ContainerStatuses[i].ContainerID[:0])"}},
		Breaks: judge.RuleQuiet, Plays: []string{"lives"},
	},
	{
		Name:   "pods of other owners count",
		Edits:  []Edit{{"internal/signal/daemon.go", "case p.Owner != ds.UID || !counts(p):", "case !counts(p):"}},
		Breaks: judge.RuleOpening, Plays: []string{"bad daemons"},
	},
	{
		Name:   "one ready DaemonSet is sufficient",
		Edits:  []Edit{{"internal/signal/daemons.go", "all = both(all, readDaemon(ds, s.minReady, in))", "all = either(all, readDaemon(ds, s.minReady, in))"}},
		Breaks: judge.RuleOpening, Plays: []string{"all daemons"},
	},
	{
		Name:   "no DaemonSet is expected on a node that is being set up",
		Edits:  []Edit{{"internal/signal/daemons.go", "taint != nil && !in.Open {", "taint != nil && false {"}},
		Breaks: judge.RuleOpening, Plays: []string{"no daemons"},
	},
	{
		Name:   "startup taints exclude DaemonSets from a node",
		Edits:  []Edit{{"internal/signal/daemon.go", "for _, t := range in.Lasting {", "for _, t := range in.Node.Taints {"}},
		Breaks: judge.RuleOpening, Plays: []string{"all daemons"},
	},
	{
		Name:   "an annotation makes a pod ready regardless of its value",
		Edits:  []Edit{{"internal/kube/feed/podmark.go", "if o.Annotations[key] != markValue {", `if o.Annotations[key] == "" {`}},
		Breaks: judge.RuleOpening, Plays: []string{"marks"},
	},
	{
		Name:   "annotations of the previous boot count",
		Edits:  []Edit{{"internal/gate/podmark.go", "case t.digest.has(p.mark()), slices.Contains(t.known, p.mark()):", "case slices.Contains(t.known, 0):"}},
		Breaks: judge.RuleOpening, Plays: []string{"marks"},
	},
	{
		Name:   "runs of another boot count",
		Edits:  []Edit{{"internal/gate/run.go", `p.Run.Boot != "" && p.Run.Boot == t.node.BootID`, "true"}},
		Breaks: judge.RuleOpening, Plays: []string{"checks"},
	},
	{
		Name:   "runs that are being deleted count",
		Edits:  []Edit{{"internal/signal/completed.go", "case p.Mirror, p.Terminating:", "case p.Mirror:"}},
		Breaks: judge.RuleOpening, Plays: []string{"checks"},
	},
	{
		Name:   "runs that failed count",
		Edits:  []Edit{{"internal/kube/feed/podrun.go", "Succeeded: o.Status.Phase == corev1.PodSucceeded", "Succeeded: o.Status.Phase != corev1.PodRunning"}},
		Breaks: judge.RuleOpening, Plays: []string{"checks"},
	},
	{
		Name:   "ResourceSlices of earlier Nodes count",
		Edits:  []Edit{{"internal/signal/resourceslices.go", "switch slice.Owner {\n\tcase in.Node.UID:", "switch slice.Owner {\n\tcase slice.Owner:"}},
		Breaks: judge.RuleOpening, Plays: []string{"devices"},
	},
	{
		Name:   "incomplete pools count",
		Edits:  []Edit{{"internal/signal/resourceslices.go", "if !p.complete() {", "if false {"}},
		Breaks: judge.RuleOpening, Plays: []string{"devices"},
	},
	{
		Name:   "devices with taints count",
		Edits:  []Edit{{"internal/kube/feed/devices.go", "return effect == resourcev1.DeviceTaintEffectNoSchedule || effect", "return effect"}},
		Breaks: judge.RuleOpening, Plays: []string{"devices"},
	},
	{
		Name:   "conditions hold regardless of their status",
		Edits:  []Edit{{"internal/signal/condition.go", "case !s.status.matches(string(c.Status)):", "case false:"}},
		Breaks: judge.RuleOpening, Plays: []string{"conditions"},
	},
	{
		Name:   "Unknown opens closeWhen gates",
		Edits:  []Edit{{"internal/signal/condition.go", "if c.Status == corev1.ConditionUnknown {", "if false && c.Status == corev1.ConditionUnknown {"}},
		Breaks: judge.RuleOpening, Plays: []string{"level"},
	},
	{
		Name:   "Unknown counts as a regression",
		Edits:  []Edit{{"internal/signal/condition.go", "if c.Status == corev1.ConditionUnknown {", "if false && c.Status == corev1.ConditionUnknown {"}},
		Breaks: judge.RuleClosing, Plays: []string{"unknown"},
	},
	{
		Name:   "a missing label holds",
		Edits:  []Edit{{"internal/signal/keyvalue.go", "case !ok:", "case false && !ok:"}},
		Breaks: judge.RuleOpening, Plays: []string{"undone"},
	},
	{
		Name:   "CSINodes of earlier Nodes count",
		Edits:  []Edit{{"internal/signal/csidriver.go", "case registered && in.CSINode.Owner != in.Node.UID:", "case false:"}},
		Breaks: judge.RuleOpening, Plays: []string{"csi"},
	},
	{
		Name:   "a driver needs no volume limit",
		Edits:  []Edit{{"internal/signal/csidriver.go", "case s.limit && !limited:", "case s.limit && !limited && false:"}},
		Breaks: judge.RuleOpening, Plays: []string{"csi"},
	},

	// Boots. The safeguards are in the core.
	{
		Name:   "containers of the previous boot count",
		Edits:  []Edit{{"internal/gate/evidence.go", "case t.digest == digestAll && p.Created.Before(t.since), t.digest.has(p.Incarnation), slices.Contains(t.known, p.Incarnation):", "case false:"}},
		Breaks: judge.RuleOpening, Plays: []string{"lives"},
	},
	{
		Name:   "pods of an earlier Node count",
		Edits:  []Edit{{"internal/gate/evidence.go", "case p.Created.Before(t.nodeCreated), slices.Contains(t.former, p.Incarnation):", "case false:"}},
		Breaks: judge.RuleOpening, Plays: []string{"former node"},
	},
	{
		Name: "reboots close nothing",
		Edits: []Edit{
			{"internal/gate/reclose.go", "case d.hasBooted(r) && d.bootsNow():", "case false:"},
			{"internal/gate/reclose.go", "case d.hasBooted(r):", "case false:"},
		},
		Breaks: judge.RuleQuiet, Plays: []string{"lives"},
	},
	{
		Name:   "unreachable nodes close nothing",
		Edits:  []Edit{{"internal/gate/reclose.go", "if d.silenceCloses(g) {", "if d.silenceCloses(g) && false {"}},
		Breaks: judge.RuleQuiet, Plays: []string{"lives"},
	},
	{
		Name:   "shutdowns close nothing",
		Edits:  []Edit{{"internal/gate/reclose.go", "case n.ShuttingDown:\n\t\treturn v1alpha1.ReasonNodeShutdown", "case false:\n\t\treturn v1alpha1.ReasonNodeShutdown"}},
		Breaks: judge.RuleQuiet, Plays: []string{"lives"},
	},

	// Opening.
	{
		Name:   "gates open on unreachable nodes",
		Edits:  []Edit{{"internal/gate/open.go", "case n.Silent():\n\t\treturn v1alpha1.ReadingNodeSilent", "case false:\n\t\treturn v1alpha1.ReadingNodeSilent"}},
		Breaks: judge.RuleOpening, Plays: []string{"blocked"},
	},
	{
		Name:   "gates open on nodes that are being set up",
		Edits:  []Edit{{"internal/gate/open.go", "case beingSetUp(n.Taints):", "case false && beingSetUp(n.Taints):"}},
		Breaks: judge.RuleOpening, Plays: []string{"blocked"},
	},
	{
		Name:   "closeWhen gates open on Unknown",
		Edits:  []Edit{{"internal/gate/follow.go", "if all == NotYet && !d.tooSoon(s, s.before, soaked) {", "if all != Holds && !d.tooSoon(s, s.before, soaked) {"}},
		Breaks: judge.RuleOpening, Plays: []string{"level"},
	},
	{
		Name:   "gates with reopen Manual open automatically",
		Edits:  []Edit{{"internal/gate/follow.go", "case s.gate.Manual:\n\t\td.awaitManualOpen(s, all)", "case false:\n\t\td.awaitManualOpen(s, all)"}},
		Breaks: judge.RuleOpening, Plays: []string{"by hand"},
	},
	{
		Name:   "every gate opens when its taint is removed",
		Edits:  []Edit{{"internal/gate/open.go", "if d.tryOpen(s); s.after.State == v1alpha1.StateOpen {", "if !d.carries(s.had) {\n\t\ts.after = d.opened(s.gate, v1alpha1.ReasonOpenedByHand)\n\t\treturn\n\t}\n\tif d.tryOpen(s); s.after.State == v1alpha1.StateOpen {"}},
		Breaks: judge.RuleOpening, Plays: []string{"undone"},
	},
	{
		Name:   "overrides open gates for good",
		Edits:  []Edit{{"internal/gate/override.go", `r.Override, r.OverrideSince = "", time.Time{}`, "if r.Override == v1alpha1.StateOpen {\n\t\t\tr.State = r.Override\n\t\t}\n\t\tr.Override, r.OverrideSince = \"\", time.Time{}"}},
		Breaks: judge.RuleOpening, Plays: []string{"overrides"},
	},
	{
		Name:   "minClosedSeconds is ignored",
		Edits:  []Edit{{"internal/gate/minclosed.go", "if !d.now.Before(until) {", "if true {"}},
		Breaks: judge.RuleOpening, Plays: []string{"timing"},
	},
	{
		Name:   "openAfterSeconds is ignored",
		Edits:  []Edit{{"internal/gate/soak.go", "case g.OpenAfter == 0:", "case true:"}},
		Breaks: judge.RuleOpening, Plays: []string{"timing"},
	},
	{
		Name:   "deadlines pass immediately",
		Edits:  []Edit{{"internal/gate/deadline.go", "case until.Before(due):", "case false && until.Before(due):"}},
		Breaks: judge.RuleOpening, Plays: []string{"timing"},
	},
	{
		Name:   "deadlines for missing pods pass although the pods exist",
		Edits:  []Edit{{"internal/gate/deadline.go", "{t.PodMissing, lacks || had}", "{t.PodMissing, lacks || true}"}},
		Breaks: judge.RuleOpening, Plays: []string{"missing pods"},
	},
	{
		Name:   "openings do not write their time",
		Edits:  []Edit{{"internal/gate/openedat.go", `s.gate.Stamp == "" || `, `s.gate.Stamp != "" || `}},
		Breaks: judge.RuleForeign, Plays: []string{"opened at"},
	},
	{
		Name:   "closings write the time of an opening",
		Edits:  []Edit{{"internal/gate/openedat.go", "!d.openedHere(s)", "s.verdict.After != v1alpha1.StateClosed"}},
		Breaks: judge.RuleForeign, Plays: []string{"opened at"},
	},
	{
		Name:   "gates that open record no boot",
		Edits:  []Edit{{"internal/gate/decide.go", "if g.recloses() {", "if false {"}},
		Breaks: judge.RuleForeign, Plays: []string{"lives"},
	},
	{
		Name:   "existing nodes become members of gates that ignore them",
		Edits:  []Edit{{"internal/gate/membership.go", "case g.Existing != v1alpha1.ExistingIgnore:", "case true:"}},
		Breaks: judge.RuleOpening, Plays: []string{"existing"},
	},
	{
		Name:   "overrides are removed before they end",
		Edits:  []Edit{{"internal/gate/override.go", "case !d.now.Before(o.Until):", "case true:"}},
		Breaks: judge.RuleForeign, Plays: []string{"overrides"},
	},
	{
		Name:   "paused gates act",
		Edits:  []Edit{{"internal/gate/mode.go", "return g.Mode != v1alpha1.ModePaused && (", "return (g.Mode == v1alpha1.ModePaused) || ("}},
		Breaks: judge.RuleOpening, Plays: []string{"modes"},
	},
	{
		Name:   "gates in dry run act",
		Edits:  []Edit{{"internal/gate/mode.go", "(g.Mode != v1alpha1.ModeDryRun || d.supposed[g.Name])", "(g.Mode != v1alpha1.ModeDryRun || d.supposed[g.Name] || true)"}, {"internal/gate/slot.go", "g.Mode == v1alpha1.ModeDryRun && !d.acts(g)", "false"}},
		Breaks: judge.RuleClosing, Plays: []string{"modes"},
	},

	// Closing.
	{
		Name:   "gates close again with the taint for new nodes",
		Edits:  []Edit{{"internal/gate/reclose.go", "d.closed(s.gate, reason, !s.isNew)", "d.closed(s.gate, reason, false)"}},
		Breaks: judge.RuleClosing, Plays: []string{"two taints"},
	},
	{
		Name:   "regressions count against the budget only until the next write",
		Edits:  []Edit{{"internal/gate/open.go", "\tr.Source = s.gate.Source\n\tif t :=", "\tr.Source = s.gate.Source\n\tif r.State == v1alpha1.StateClosed && r.Reason == v1alpha1.ReasonRegression {\n\t\tr.Reason = v1alpha1.ReasonAdopted\n\t}\n\tif t :="}},
		Breaks: judge.RuleClosing, Plays: []string{"regression"},
	},
	{
		Name:   "closeWhen gates close on Unknown",
		Edits:  []Edit{{"internal/gate/follow.go", "case all != Holds || manual:", "case all == NotYet || manual:"}},
		Breaks: judge.RuleClosing, Plays: []string{"level"},
	},
	{
		Name:   "nodes older than the gate are new to it",
		Edits:  []Edit{{"internal/gate/gate.go", "return !n.Created.Before(g.Created) && now.Sub(n.Created) <= newFor", "return now.Sub(n.Created) <= newFor"}},
		Breaks: judge.RuleClosing, Plays: []string{"existing"},
	},
	{
		Name:   "gates close on existing nodes whose signals hold",
		Edits:  []Edit{{"internal/gate/membership.go", "switch fit := d.evaluate(s, r); {", "switch fit := d.evaluate(s, r) && false; {"}},
		Breaks: judge.RuleClosing, Plays: []string{"existing"},
	},
	{
		Name:   "gates close on existing nodes whose signals are unknown",
		Edits:  []Edit{{"internal/gate/membership.go", "case anyUnknown(s.verdict.Readings):", "case false && anyUnknown(s.verdict.Readings):"}},
		Breaks: judge.RuleClosing, Plays: []string{"existing"},
	},
	{
		Name:   "nodes with a workload count as idle",
		Edits:  []Edit{{"internal/gate/podlist.go", "return !p.Daemon && !p.Mirror && !p.Finished", "return false && !p.Daemon && !p.Mirror && !p.Finished"}},
		Breaks: judge.RuleClosing, Plays: []string{"existing"},
	},
	{
		Name:   "gates with NoExecute close on unreachable nodes",
		Edits:  []Edit{{"internal/gate/reclose.go", "if g.taint(true).Effect == corev1.TaintEffectNoExecute || d.Zone.Partitioned() {", "if d.Zone.Partitioned() {"}},
		Breaks: judge.RuleClosing, Plays: []string{"no execute"},
	},
	{
		Name:   "gates close in partitioned zones",
		Edits:  []Edit{{"internal/gate/reclose.go", "if g.taint(true).Effect == corev1.TaintEffectNoExecute || d.Zone.Partitioned() {", "if g.taint(true).Effect == corev1.TaintEffectNoExecute {"}},
		Breaks: judge.RuleClosing, Plays: []string{"partition"},
	},
	{
		Name:   "budgets are unlimited",
		Edits:  []Edit{{"internal/gate/budget.go", "n, err := intstr.GetScaledValueFromIntOrPercent(budget, nodes, true)", "n, err := intstr.GetScaledValueFromIntOrPercent(budget, nodes, true)\n\tn += nodes"}},
		Breaks: judge.RuleClosing, Plays: []string{"regression"},
	},
	{
		Name:   "NoExecute taints have no time",
		Edits:  []Edit{{"internal/gate/taints.go", "taint.TimeAdded = &metav1.Time{Time: d.now}", "taint.TimeAdded = &metav1.Time{}"}},
		Breaks: judge.RuleForeign, Plays: []string{"no execute"},
	},
	{
		Name:   "closings record no time",
		Edits:  []Edit{{"internal/gate/decide.go", "State: v1alpha1.StateClosed, Since: d.since(), Reason: reason,", "State: v1alpha1.StateClosed, Reason: reason,"}},
		Breaks: judge.RuleClosing, Plays: []string{"lives"},
	},
	{
		Name:   "regressions are recorded as births",
		Edits:  []Edit{{"internal/gate/reclose.go", "return d.closesUnderBudget(s, due, v1alpha1.ReasonRegression)", "return d.closesUnderBudget(s, due, v1alpha1.ReasonBirth)"}},
		Breaks: judge.RuleClosing, Plays: []string{"regression"},
	},
	{
		Name:   "regressions are recorded as adoptions",
		Edits:  []Edit{{"internal/gate/reclose.go", "return d.closesUnderBudget(s, due, v1alpha1.ReasonRegression)", "return d.closesUnderBudget(s, due, v1alpha1.ReasonAdopted)"}},
		Breaks: judge.RuleClosing, Plays: []string{"regression"},
	},
	{
		Name:   "writes in flight need no budget",
		Edits:  []Edit{{"internal/fleet/budget.go", "-z.used-z.inFlight, 0)", "-z.inFlight, 0)"}},
		Breaks: judge.RuleClosing, Plays: []string{"regression"},
	},
	{
		Name:   "incomplete groups open",
		Edits:  []Edit{{"internal/gate/together.go", "case s.Fit < s.Needed:", "case false:"}},
		Breaks: judge.RuleOpening, Plays: []string{"groups"},
	},
	{
		Name:   "incomplete groups close without closeTogether",
		Edits:  []Edit{{"internal/gate/together.go", "t == nil || !t.Closes || ", "t == nil || "}},
		Breaks: judge.RuleClosing, Plays: []string{"groups"},
	},
	{
		Name:   "closeWhen gates need no budget",
		Edits:  []Edit{{"internal/gate/follow.go", "case !d.Granted[s.gate.Name]:", "case false:"}},
		Breaks: judge.RuleClosing, Plays: []string{"level"},
	},

	// Conditions.
	{
		Name:   "conditions need no budget",
		Edits:  []Edit{{"internal/gate/condition.go", `v.WasPublished || d.Granted[s.name] && v.Wants == ""`, "true"}},
		Breaks: judge.RuleClosing, Plays: []string{"overdue"},
	},
	{
		Name: "conditions do not wait for the deadline",
		Edits: []Edit{
			{"internal/gate/condition.go", "s.after.State != v1alpha1.StateClosed || !s.after.Overdue ||", "s.after.State != v1alpha1.StateClosed ||"},
			{"internal/gate/condition.go", "case !s.before.isOverdue():", "case s.before == nil:"},
		},
		Breaks: judge.RuleForeign, Plays: []string{"overdue"},
	},
	{
		Name:   "conditions stay when the gate opens",
		Edits:  []Edit{{"internal/gate/condition.go", "!s.after.Overdue || s.isOverriddenOpen():\n\t\treturn withdraws", "!s.after.Overdue || s.isOverriddenOpen():\n\t\treturn keepsCondition"}},
		Breaks: judge.RuleQuiet, Plays: []string{"overdue"},
	},

	// Ownership of taints and records.
	{
		Name:   "a gate that opens removes a shared taint",
		Edits:  []Edit{{"internal/gate/taints.go", "case s == nil && d.surplus(i):", "case d.surplus(i) && (s == nil || d.slots[0].after != nil):"}},
		Breaks: judge.RuleForeign, Plays: []string{"twins"},
	},
	{
		Name: "taints of gates without a record are removed",
		Edits: []Edit{
			{"internal/gate/membership.go", "case d.carriesOwn(g):", "case false && d.carriesOwn(g):"},
			{"internal/gate/taints.go", "s.gate.Accepted && (s.after != nil || s.removes) && s.gate.owns(", "s.gate.Accepted && s.gate.owns("},
		},
		Breaks: judge.RuleOpening, Plays: []string{"existing"},
	},
	{
		Name:   "kubelets may write records",
		Edits:  []Edit{{"internal/admission/guards.yaml", "  - expression: '!variables.normal || variables.override'\n", "  - expression: 'true || variables.override'\n"}},
		Breaks: judge.RuleForeign, Plays: []string{"forger"},
	},
	{
		Name:   "records with which a kubelet registers are kept",
		Edits:  []Edit{{"internal/admission/birth.yaml", "(variables.closed.size() == 0 || !variables.recordsFit ? [] :", "(variables.closed.size() == 0 || !variables.recordsFit || variables.annotations.size() > 0 ? [] :"}, {"internal/admission/birth.yaml", "variables.forged.map(key,", "variables.forged.filter(key, false).map(key,"}},
		Breaks: judge.RuleForeign, Plays: []string{"forger"},
	},

	// Birth.
	{
		Name:   "nodes with foreign taints are created ungated",
		Edits:  []Edit{{"internal/admission/birth.yaml", "!variables.valid || variables.taints.size() > 1024 ||", "!variables.valid || variables.taints.size() > 2 ||"}},
		Breaks: judge.RuleBirth, Plays: []string{"conditions"},
	},
	{
		Name:   "nodes with annotations are created without records",
		Edits:  []Edit{{"internal/admission/birth.yaml", "variables.annotations.size() - variables.forged.size() <= 1024 && ", "variables.annotations.size() == 0 && "}},
		Breaks: judge.RuleBirth, Plays: []string{"forger"},
	},

	{
		Name:   "taints are added after the record",
		Edits:  []Edit{{"internal/kube/write/patch.go", "case len(added) == 0:", "case len(added) == 0, strings.Contains(fmt.Sprint(d.Records), `\"Rebooted\"`) && !strings.Contains(fmt.Sprint(d.Records), `\"fought\"`):"}},
		Breaks: judge.RuleForeign, Plays: []string{"lives"},
	},
	{
		Name: "reboots remove the boot from records of open gates",
		Edits: []Edit{
			{"internal/gate/reclose.go", "case d.hasBooted(r) && d.bootsNow():", "case false:"},
			{"internal/gate/reclose.go", "case d.hasBooted(r):", "case false:"},
			{"internal/gate/reclose.go", "case s.gate.Reclose == v1alpha1.RecloseNever:", "case s.gate.Reclose == v1alpha1.RecloseNever || d.bootsNow():"},
		},
		Breaks: judge.RuleForeign, Plays: []string{"lives"},
	},

	{
		Name:   "annotations are erased when records are added to new Nodes",
		Edits:  []Edit{{"internal/admission/birth.yaml", "(variables.excessive || variables.annotations.size() == 0 && variables.closed.size() > 0 ?", "(variables.closed.size() > 0 ?"}},
		Breaks: judge.RuleForeign, Plays: []string{"at work"},
	},
	{
		Name:   "outages are recorded in milliseconds",
		Edits:  []Edit{{"internal/gate/deadline.go", "r.SilentSeconds += int64((max(silence, 0) + time.Second - 1) / time.Second)", "r.SilentSeconds += int64(max(silence, 0) / time.Millisecond)"}},
		Breaks: judge.RuleClosing, Plays: []string{"outage"},
	},

	// What nodes and nodegate need.
	{
		Name: "heartbeats count as changes of records",
		Edits: []Edit{{"internal/admission/guards.yaml",
			"object.?metadata.?annotations.orValue({}) != oldObject.?metadata.?annotations.orValue({}) && (",
			"object.?metadata.?annotations.orValue({}) == oldObject.?metadata.?annotations.orValue({}) || ("}},
		Breaks: judge.RuleNodes, Plays: []string{"at work"},
	},
	{
		Name:   "annotations of kubelets count as records",
		Edits:  []Edit{{"internal/admission/guards.yaml", "name.startsWith('gate.nodegate.dev/') || name.startsWith('override.nodegate.dev/'), value.substring(0)) !=", "name.startsWith(''), value.substring(0)) !="}},
		Breaks: judge.RuleNodes, Plays: []string{"at work"},
	},
	{
		Name:   "a taint with which a kubelet registers is added again",
		Edits:  []Edit{{"internal/admission/birth.yaml", "!(variables.ids[i] in variables.present) &&\n            (n == 0", "(n == 0"}},
		Breaks: judge.RuleNodes, Plays: []string{"at work"},
	},
	{
		Name:   "patches that do not test the taint at its index are rejected",
		Edits:  []Edit{{"internal/kube/write/patch.go", "ops = append(ops, testTaint(path, t)...)", ""}},
		Breaks: judge.RuleLockout, Plays: []string{"race: taints"},
	},

	// The final state.
	{
		Name:   "taints removed by other writers are not restored",
		Edits:  []Edit{{"internal/gate/open.go", "if i < 0 {\n\t\treturn true\n\t}\n\town := t.Value", "if i < 0 {\n\t\treturn false\n\t}\n\town := t.Value"}, {"internal/gate/taints.go", "for _, s := range d.holders[len(d.Node.Taints):] {\n\t\tif s.gate.Accepted {", "for _, s := range d.holders[len(d.Node.Taints):] {\n\t\tif s.gate.Accepted && s.had.Key == \"\" {"}},
		Breaks: judge.RuleQuiet, Plays: []string{"undone"},
	},
	{
		Name:   "taints of open gates added by other writers are not removed",
		Edits:  []Edit{{"internal/gate/taints.go", "return o.any && !o.kept && (!o.left || o.restores)", "t := &d.Node.Taints[i]\n\treturn o.any && !o.kept && (!o.left || o.restores) && d.accounted(v1alpha1.Taint{Key: t.Key, Effect: t.Effect})"}},
		Breaks: judge.RuleQuiet, Plays: []string{"undone"},
	},
	{
		Name:   "deleted gates leave taints and records",
		Edits:  []Edit{{"internal/gate/orphan.go", "case s.before != nil && !d.DeletedGates[s.name] && !d.CompleteSources[cmp.Or(s.before.Source, v1alpha1.SourceCRD)]:", "case s.before != nil && cmp.Or(s.before.Source, v1alpha1.SourceCRD) != \"\":"}},
		Breaks: judge.RuleQuiet, Plays: []string{"deleted"},
	},
	{
		Name:   "deleted gates leave taints",
		Edits:  []Edit{{"internal/gate/taints.go", "if s.accounts(t) {", "if s.accounts(t) && s.gate != nil {"}},
		Breaks: judge.RuleQuiet, Plays: []string{"deleted"},
	},
	{
		Name:   "overrides do not end",
		Edits:  []Edit{{"internal/gate/override.go", "case !d.now.Before(o.Until):", "case d.now.IsZero():"}},
		Breaks: judge.RuleQuiet, Plays: []string{"overrides"},
	},
	{
		Name:   "pod events are lost",
		Edits:  []Edit{{"internal/kube/feed/pods.go", "	if changed {\n\t\ts.changed(p.node)\n\t}\n}\n\n// Drop implements", "	_ = changed\n}\n\n// Drop implements"}},
		Breaks: judge.RuleQuiet, Plays: []string{"all daemons"},
	},
	{
		Name:   "CSINode events are lost",
		Edits:  []Edit{{"internal/kube/feed/csinodes.go", "	if changed {\n\t\ts.changed(f.node)\n\t}\n}\n\n// Drop", "	_ = changed\n}\n\n// Drop"}},
		Breaks: judge.RuleQuiet, Plays: []string{"csi"},
	},
}
