// SPDX-License-Identifier: Apache-2.0

package tolerate

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/release"
)

// What adds tolerations.
const (
	// ByPolicy means that the tolerations policy adds them to an update of the DaemonSet.
	ByPolicy = "policy"
	// ByApply means that they are applied. The field manager then owns the list.
	ByApply = "apply"
)

// Report is the result of a command. Fields may be added, but are neither renamed nor
// changed in meaning.
type Report struct {
	// DryRun is client or server if nothing was persisted.
	DryRun release.DryRun `json:"dryRun,omitempty"`
	// DaemonSets are those that lacked a toleration, sorted by namespace and name.
	DaemonSets []Result `json:"daemonSets"`
	// GatesWithoutDaemonSets are the gates that wait for what a daemon provides, and name no
	// DaemonSet.
	GatesWithoutDaemonSets []GateWithoutDaemonSets `json:"gatesWithoutDaemonSets,omitempty"`
}

// GateWithoutDaemonSets is a gate that waits for what a daemon provides, and names no DaemonSet.
// Whether its DaemonSets tolerate its taints is not known.
type GateWithoutDaemonSets struct {
	Gate string `json:"gate"`
	// Signals are the kinds of its signals, such as csiDriver.
	Signals []string `json:"signals"`
	// Taints are those that its DaemonSets must tolerate, as KEY:EFFECT.
	Taints []string `json:"taints"`
}

// Result is the result for one DaemonSet.
type Result struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Gates are the names of the gates whose taints it did not tolerate.
	Gates []string `json:"gates"`
	// Added are the taints whose tolerations were added, as KEY:EFFECT. With an Error, they are missing.
	Added []string `json:"added,omitempty"`
	// By is what added them: policy or apply. Empty in a dry run of the client.
	By string `json:"by,omitempty"`
	// Rollout is the update strategy with which the DaemonSet controller replaces the pods.
	Rollout string `json:"rollout,omitempty"`
	// Owners are the field managers that own the list of tolerations, if this is the error.
	Owners []string `json:"owners,omitempty"`
	// Error is the reason why nothing was added.
	Error string `json:"error,omitempty"`
}

func (r *Result) String() string { return "daemonset.apps/" + r.Namespace + "/" + r.Name }

// Complete reports whether all DaemonSets now have the tolerations.
func (r *Report) Complete() bool {
	return !slices.ContainsFunc(r.DaemonSets, func(d Result) bool { return d.Error != "" })
}

// Names returns the changed DaemonSets, one per line.
func (r *Report) Names() string {
	var b strings.Builder
	for i := range r.DaemonSets {
		if d := &r.DaemonSets[i]; d.Error == "" && len(d.Added) > 0 {
			fmt.Fprintln(&b, d)
		}
	}
	return b.String()
}

// Text returns the report as human-readable text.
func (r *Report) Text() string {
	var b strings.Builder
	for i := range r.DaemonSets {
		switch d := &r.DaemonSets[i]; {
		case len(d.Owners) > 0:
			fmt.Fprintf(&b, "%s not changed: %s. Add the toleration of %s there, or use --force-conflicts: %s then owns the list, and "+
				"the next server-side apply of the former owner fails with a conflict or, if it is forced, removes the toleration.\n",
				d, d.Error, strings.Join(d.Added, " and "), v1alpha1.TolerateFieldManager)
		case d.Error != "":
			fmt.Fprintf(&b, "%s not changed: %s\n", d, d.Error)
		case len(d.Added) == 0:
			fmt.Fprintf(&b, "%s unchanged: another writer has added the tolerations\n", d)
		default:
			fmt.Fprintf(&b, "%s tolerates %s%s of %s%s\n%s", d, strings.Join(d.Added, " and "), d.by(), gates(d.Gates), r.DryRun.Suffix(), d.consequence())
		}
	}
	switch {
	case len(r.DaemonSets) > 0:
	case len(r.GatesWithoutDaemonSets) == 0:
		b.WriteString("All DaemonSets tolerate the taints of the gates that wait for them.\n")
	default:
		b.WriteString("All DaemonSets tolerate the taints of the gates that name or select them.\n")
	}
	for i := range r.GatesWithoutDaemonSets {
		g := &r.GatesWithoutDaemonSets[i]
		fmt.Fprintf(&b, "Gate %s names no DaemonSet (signals: %s): check that the DaemonSets behind it tolerate %s, and add missing tolerations yourself.\n",
			g.Gate, strings.Join(g.Signals, ", "), strings.Join(g.Taints, " and "))
	}
	return b.String()
}

func (r *Result) by() string {
	if r.By == ByPolicy {
		return " (added by policy " + admission.TolerationsPolicy + ")"
	}
	return ""
}

func gates(names []string) string {
	if len(names) == 1 {
		return "gate " + names[0]
	}
	return "gates " + strings.Join(names, ", ")
}

// consequence returns what happens to the DaemonSet's pods.
func (r *Result) consequence() string {
	if r.Rollout == string(appsv1.OnDeleteDaemonSetStrategyType) {
		return "  Its running pods are not replaced (update strategy OnDelete); new pods have the toleration.\n"
	}
	return "  Its pods are replaced (update strategy " + r.Rollout + ").\n"
}

// texts returns tolerations as KEY:EFFECT.
func texts(tolerations []corev1.Toleration) []string {
	var all []string
	for _, t := range tolerations {
		all = append(all, t.Key+":"+string(t.Effect))
	}
	return all
}
