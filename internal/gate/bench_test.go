// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"testing"
	"time"
)

// benchmarkNode returns a running node with n gates, all of them open except the last,
// which waits for its agent.
func benchmarkNode(n int) *sim {
	s := aNode()
	for i := range n {
		name := fmt.Sprintf("gate%02d", i)
		s.gates = append(s.gates, aGate(name, waitingFor(agent(name)), selecting("pool in (a,b), !virtual")))
		s.pod(name, "x", true).open(name)
	}
	last := s.gates[n-1].Name
	s.label("pool", "a").pod(last, "x", false).closed(last)
	return s
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{2, 50} {
		steady := benchmarkNode(n)
		opening := benchmarkNode(n)
		opening.pod(opening.gates[n-1].Name, "y", true)
		birth := benchmarkNode(n).age(time.Second)
		birth.facts.Node.Records, birth.facts.Node.Taints = nil, nil
		tried := benchmarkNode(n)
		inDryRun(&tried.gates[n-1])
		tried.apply(tried.decide())
		for name, s := range map[string]*sim{"steady": steady, "opening": opening, "birth": birth, "dry run": tried} {
			b.Run(fmt.Sprintf("%s/gates=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					s.decide()
				}
			})
		}
	}
}
