// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"testing"
	"time"
)

// spoiled returns a gate whose signals cannot be compiled. It had closed nodes before
// it was edited.
func spoiled(options ...func(*Gate)) Gate {
	return aGate("cni", append([]func(*Gate){waitingFor(), refused}, options...)...)
}

func TestBrokenSignals(t *testing.T) {
	deadline := func(action bool) func(*Gate) {
		return func(g *Gate) { g.Deadline = Deadline{Ready: time.Minute, Open: action} }
	}
	follows := func(g *Gate) { g.CloseWhen = true }
	closed, open := "["+cniTaint+"] cni:Closed>Closed(Birth)", "[] cni:Open>Open(Birth)"
	check(t, map[string]spec{
		// It does not close on any node.
		"a new node":                      {aNode(spoiled()).age(time.Second), "[] cni:->-"},
		"a new node with the taint":       {aNode(spoiled()).age(time.Second).taint(cniTaint), "[" + cniTaint + "] cni:->-"},
		"an existing node, granted":       {aNode(spoiled(existing("Close"))).granting("cni"), "[] cni:->-"},
		"a node that was rebooted":        {aNode(spoiled()).open("cni").boot("b"), open},
		"a node that becomes unreachable": {aNode(spoiled()).open("cni").ready("Unknown"), open},
		"a node that shuts down":          {aNode(spoiled()).open("cni").shuttingDown(true), open},
		"a node in regression, granted":   {aNode(spoiled(reclosing(onRegression))).open("cni").granting("cni"), open},
		"a node of a closeWhen gate":      {aNode(spoiled(follows)).granting("cni"), "[] cni:->-"},
		"another writer's taint stays":    {aNode(spoiled()).open("cni").taint(cniTaint), "[" + cniTaint + "] cni:Open>Open(Birth)"},

		// Nodes that it closed stay closed.
		"closed":                           {aNode(spoiled()).closed("cni"), closed},
		"closed, by closeWhen":             {aNode(spoiled(follows)).closed("cni"), closed},
		"closed, its taint edited as well": {aNode(spoiled(tainting("new.example/x:NoSchedule"))).closed("cni"), closed},
		"closed, its taint removed":        {aNode(spoiled()).closed("cni").untaint(cniTaint), "[] cni:Closed>Closed(Birth)"},
		"closed, and past a deadline":      {aNode(spoiled(deadline(false))).closed("cni"), "write " + closed + " overdue passed"},
		"closed, then rebooted":            {aNode(spoiled()).closed("cni").boot("b"), "write [" + cniTaint + "] cni:Closed>Closed(Rebooted)"},

		// They stay under its control.
		"opened by its deadline":             {aNode(spoiled(deadline(true))).closed("cni"), "write [] cni:Closed>Open(DeadlinePassed) passed"},
		"opened when no longer selected":     {aNode(spoiled(selecting("pool=gpu"))).closed("cni").left("cni"), "write [] cni:Closed>-(NotSelected)"},
		"opened when it is deleted":          {aNode().closed("cni"), "write [] cni:Closed>-(GateDeleted)"},
		"opened when it is fixed":            {aNode(aGate("cni")).closed("cni").flag("cni", "holds"), "write [] cni:Closed>Open(SignalsHold)"},
		"fixed, and its signals do not hold": {aNode(aGate("cni")).closed("cni"), closed},
	})
}
