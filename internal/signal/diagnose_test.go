// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

func unprobed(ds *gate.DaemonSet) { ds.Unprobed = true }

func TestDiagnose(t *testing.T) {
	one := v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}
	many := v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}}
	level := v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "k"}}
	taints := []v1alpha1.Taint{{Key: gateKey, Effect: "NoSchedule"}}
	for name, c := range map[string]struct {
		signal v1alpha1.SignalSource
		sets   *gate.DaemonSets
		state  gate.State
		reason v1alpha1.ReadingReason
	}{
		"no problem":                  {one, &aNode(with("agent")).sets, gate.Holds, ""},
		"does not exist":              {one, &aNode().sets, gate.NotYet, v1alpha1.ReadingDaemonSetNotFound},
		"is being deleted":            {one, &aNode(with("agent", deleting, tolerating())).sets, gate.NotYet, v1alpha1.ReadingDaemonSetBeingDeleted},
		"one is being deleted":        {many, &aNode(with("agent", deleting, tolerating()), with("b")).sets, gate.Holds, ""},
		"deadlock":                    {one, &aNode(with("agent", tolerating())).sets, gate.NotYet, deadlock},
		"not probed":                  {one, &aNode(with("agent", unprobed)).sets, gate.Holds, v1alpha1.ReadingDaemonNotProbed},
		"one not probed":              {many, &aNode(with("agent", unprobed), with("b")).sets, gate.Holds, v1alpha1.ReadingDaemonNotProbed},
		"a deadlock takes precedence": {many, &aNode(with("agent", unprobed), with("b", tolerating())).sets, gate.NotYet, deadlock},
		"not observed":                {one, &aNode(unobservedSets).sets, gate.Unknown, notObserved},
		"nothing observed":            {one, nil, gate.Unknown, notObserved},
		"several, no problem":         {many, &aNode(with("agent"), with("b")).sets, gate.Holds, ""},
		"none":                        {many, &aNode().sets, gate.Holds, v1alpha1.ReadingNoDaemonSetSelected},
		"one in a deadlock":           {many, &aNode(with("agent"), with("b", tolerating())).sets, gate.NotYet, deadlock},
		"many, not observed":          {many, &aNode(unobservedSets).sets, gate.Unknown, notObserved},
		"many, nothing observed":      {many, nil, gate.Unknown, notObserved},
		"a label has no problem":      {level, nil, gate.Holds, ""},
	} {
		if r := Diagnose(mustCompile(t, c.signal), taints, c.sets); r.State != c.state || r.Reason != c.reason {
			t.Errorf("%s: %s %s", name, r.State, r.Reason)
		}
	}
}
