// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/presets"
)

// rollsBackUnchecked verifies what the guide states about a release that added a gate and its key:
// an upgrade to the values before is refused, but Helm rolls back without a check, to the policy
// that does not allow nodegate to open the nodes of the deleted gate.
func (w *world) rollsBackUnchecked() {
	w.Helper()
	fewer := slices.DeleteFunc(presets.TaintKeys(), func(key string) bool { return key == "node.cilium.io/agent-not-ready" })
	upgrade := func(enabled bool, keys []string) error {
		values := object{"allowedTaintKeys": keys, "presets": object{"cilium": object{"enabled": enabled}}}
		return w.helm(values, "upgrade", "nodegate", chart, "--reset-then-reuse-values")
	}
	must(w.T, upgrade(false, fewer))
	must(w.T, upgrade(true, presets.TaintKeys()))
	gate := w.get("cilium", &v1alpha1.NodeGate{}).(*v1alpha1.NodeGate)
	w.report(gate, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	if err := upgrade(false, fewer); err == nil || !strings.Contains(err.Error(), "not in allowedTaintKeys") {
		w.Errorf("an upgrade to the values before the gate: %v, want that its key is missing", err)
	}
	w.allows(presets.TaintKeys())

	// The refused upgrade rendered nothing, so it is no revision.
	must(w.T, w.helm(nil, "rollback", "nodegate"))
	w.allows(fewer)
	if err := w.find("cilium", gate); !apierrors.IsNotFound(err) {
		w.Errorf("the rollback did not delete the gate (%v)", err)
	}

	// What the guide recommends: the key is allowed again, without the gate.
	must(w.T, upgrade(false, presets.TaintKeys()))
	w.allows(presets.TaintKeys())
	must(w.T, upgrade(false, fewer))
}
