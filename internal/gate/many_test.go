// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Two hundred gates in any order, twenty of which select the node, with taints of their
// own: the node is closed by all twenty at birth, and all twenty open, with one
// decision each. Everything in a decision is in the order of the gates' names.
func TestManyGatesOneDecision(t *testing.T) {
	const number, onNode = 200, 20
	var gates []Gate
	var want []string
	for i := range number {
		name := fmt.Sprintf("gate-%03d", i)
		pool := i % (number / onNode)
		gates = append(gates, aGate(name, waitingFor(flagSignal("fit")), selecting(fmt.Sprintf("pool=p%d", pool))))
		if pool == 3 {
			want = append(want, name)
		}
	}
	born := aNode().age(time.Second).label("pool", "p3")
	closes := Decide(gates, &born.facts, epoch)
	for range 20 {
		rand.Shuffle(len(gates), func(i, j int) { gates[i], gates[j] = gates[j], gates[i] })
		if again := Decide(gates, &born.facts, epoch); !reflect.DeepEqual(again, closes) {
			t.Fatalf("the decision depends on the order of the gates:\n%+v\n%+v", again, closes)
		}
	}
	var names, keys []string
	for i := range closes.Verdicts {
		v := &closes.Verdicts[i]
		names = append(names, v.Gate)
		if !v.Closed() || v.Waiting() != 0 {
			t.Errorf("%s: %+v", v.Gate, v)
		}
	}
	for _, taint := range closes.Taints {
		keys = append(keys, taint.Key)
	}
	if !slices.Equal(names, want) || len(closes.Records) != onNode {
		t.Errorf("verdicts about %v and %d records, want %v", names, len(closes.Records), want)
	}
	for i, key := range keys {
		if key != want[i]+".example/not-ready" {
			t.Errorf("taint %d is %s, want the taint of %s", i, key, want[i])
		}
	}

	born.gates = gates
	born.run(t)
	size := 0
	for name, raw := range born.facts.Node.Records {
		size += len(v1alpha1.RecordAnnotationPrefix) + len(name) + len(raw)
	}
	if size > 8<<10 { // the limit for all annotations is 256 KiB
		t.Errorf("%d records take %d bytes", onNode, size)
	}
	opens := born.label("flag/fit", "holds").decide()
	opened := 0
	for i := range opens.Verdicts {
		if opens.Verdicts[i].Opened() {
			opened++
		}
	}
	if opened != onNode || len(opens.Taints) != 0 || len(opens.Records) != onNode {
		t.Errorf("one decision opens %d of %d gates, leaves %v and writes %d records", opened, onNode, opens.Taints, len(opens.Records))
	}
}
