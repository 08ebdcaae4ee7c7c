// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

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
		if !v.Closed() || v.Waiting(false) != 0 {
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

// overfull returns a node with as many records of unknown gates, with this text, twice
// as many taints, none of which a gate may use, an unreadable override for each record,
// and a gate that is closed.
func overfull(records int, text string) *sim {
	s := allowing(aNode(aGate("cni")).closed("cni"), "cni.example/not-ready")
	s.facts.Node.Overrides = make(map[string]string, records)
	for i := range records {
		key := strconv.Itoa(i)
		s.facts.Node.Records[key] = text
		s.facts.Node.Overrides[key] = "unreadable"
		s.facts.Node.Taints = append(s.facts.Node.Taints, corev1.Taint{Key: key, Effect: "NoSchedule"}, corev1.Taint{Key: key, Effect: "NoExecute"})
	}
	return s
}

// A kubelet can register with as many taints, records and overrides as a Node has space
// for. The workers that decide about it also decide about all other nodes, so the time
// grows linearly: with these numbers, comparing each with each takes more than ten
// minutes.
func TestDecisionAboutOverfullNode(t *testing.T) {
	for name, s := range map[string]*sim{
		"unreadable records":              overfull(100_000, "unreadable"),
		"records that account for taints": overfull(100_000, cniRecord),
		"records of unknown gates":        overfull(100_000, `{"state":"Open"}`).invisible(),
	} {
		d := s.flag("cni", "holds").decide()
		if v := d.Verdict("cni"); !d.Changes || v.After != v1alpha1.StateOpen || len(d.Verdicts) != 100_001 {
			t.Errorf("%s: changes %v, %d verdicts, the gate's is %+v", name, d.Changes, len(d.Verdicts), v)
		}
		if len(d.Taints) != 200_000 {
			t.Errorf("%s: %d taints remain, want all except the gate's", name, len(d.Taints))
		}
	}
}
