// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/internal/gate"
)

// texts generates typical texts, some of them often, and arbitrary bytes.
func texts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			"", "a", "n1", "Ready", "True", "kubernetes.io/hostname", "\"", `","`, `":"`, `{"`, "\xff\xfe", "ü", strings.Repeat("huge", 1<<16),
			strings.Repeat("x", entryBytesMax), strings.Repeat("x", entryBytesMax+1),
			"0d0a7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a11", "0D0A7D2C-6F0F-4B7E-A1D6-1F3A7A1F9A11", "0d0a7d2c06f0f04b7e0a1d601f3a7a1f9a11", "{0d0a7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a1}",
			"2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.670Z", "2026-01-02T03:04:05Z", "2026-01-02T24:04:05Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-01-02T03:04:05+00:00Z",
		}),
		rapid.String(), rapid.StringN(0, 3, -1),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
	)
}

func times() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		seconds := rapid.OneOf(
			rapid.Int64Range(1_700_000_000, 1_900_000_000),
			rapid.SampledFrom([]int64{0, -1, epoch, -62135596800, -62135596801, 253402300799, math.MaxInt64, math.MinInt64, 1 << 61, -1 << 61, 1<<60 - 1, -1 << 60}),
			rapid.Int64(),
		).Draw(t, "seconds")
		nanos := rapid.SampledFrom([]int64{0, 0, 1, 678_000_000, 999_999_999}).Draw(t, "nanos")
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.Unix(seconds, nanos).UTC()
	})
}

func records() *rapid.Generator[string] {
	return rapid.OneOf(
		texts(),
		rapid.SampledFrom([]string{
			`{}`, `{"`, `{""}`, `{"":""}`, `{"a"}`, `{"a":1,"b":"c"}`, `{"a":"b","c":true,"d":"e"}`, `{"a":"b", "c":"d"}`, `{"a":":":"b"}`, `{"a":"b"} `,
			`{"state":"Closed","reason":"Birth","boot":"4c0e0d0a-6f0f-4b7e-a1d6-1f3a7a1f9a11","taint":"node.cilium.io/agent-not-ready:NoSchedule","source":"crd"}`,
			`{"state":"Closed","since":"2026-01-02T03:04:05.678Z","reason":"Boot","taint":"a=b:NoExecute","reclosed":true,"source":"crd","digest":"1,2,3","overdue":true}`,
		}),
		rapid.Map(rapid.SliceOf(texts()), func(of []string) string { return `{"` + strings.Join(of, `","`) + `"}` }),
	)
}

// mapsOf generates nil, empty and non-empty maps.
func mapsOf[V any](value *rapid.Generator[V]) *rapid.Generator[map[string]V] {
	return rapid.OneOf(rapid.Just(map[string]V(nil)), rapid.MapOf(texts(), value))
}

func slicesOf[V any](value *rapid.Generator[V]) *rapid.Generator[[]V] {
	return rapid.OneOf(rapid.Just([]V(nil)), rapid.SliceOfN(value, 0, 6))
}

func nodes() *rapid.Generator[*gate.Node] {
	taint := rapid.Custom(func(t *rapid.T) corev1.Taint {
		taint := corev1.Taint{
			Key: texts().Draw(t, "key"), Value: texts().Draw(t, "value"),
			Effect: corev1.TaintEffect(rapid.OneOf(rapid.SampledFrom([]string{"NoSchedule", "NoExecute"}), texts()).Draw(t, "effect")),
		}
		if rapid.Bool().Draw(t, "added") {
			taint.TimeAdded = new(metav1.NewTime(times().Draw(t, "at")))
		}
		return taint
	})
	condition := rapid.Custom(func(t *rapid.T) gate.Condition {
		return gate.Condition{
			Type:      rapid.OneOf(rapid.Just("Ready"), texts()).Draw(t, "type"),
			Status:    corev1.ConditionStatus(rapid.OneOf(rapid.SampledFrom([]string{"True", "False", "Unknown"}), texts()).Draw(t, "status")),
			Heartbeat: times().Draw(t, "heartbeat"), Transition: times().Draw(t, "transition"),
		}
	})
	quantity := rapid.Map(rapid.SampledFrom([]string{"0", "8", "110", "32Gi", "100m", "1e3", "0.5", "1.5Gi", "-1", "123456789012345678901234567890", "1n"}), resource.MustParse)
	return rapid.Custom(func(t *rapid.T) *gate.Node {
		return &gate.Node{
			Name: texts().Draw(t, "name"), UID: types.UID(texts().Draw(t, "uid")), Created: times().Draw(t, "created"),
			ResourceVersion: rapid.OneOf(texts(), rapid.SampledFrom([]string{"1", "01", "+1", "9223372036854775807", "9223372036854775808", "18446744073709551616"})).Draw(t, "version"),
			BootID:          texts().Draw(t, "boot"), RawBootID: texts().Draw(t, "raw boot"), HasAnnotations: rapid.Bool().Draw(t, "annotated"), ShuttingDown: rapid.Bool().Draw(t, "shutting down"),
			Labels: mapsOf(texts()).Draw(t, "labels"), Annotations: mapsOf(texts()).Draw(t, "annotations"), Info: mapsOf(texts()).Draw(t, "info"),
			Records: mapsOf(records()).Draw(t, "records"), Overrides: mapsOf(records()).Draw(t, "overrides"),
			Allocatable: mapsOf(quantity).Draw(t, "allocatable"),
			Taints:      slicesOf(taint).Draw(t, "taints"), Conditions: slicesOf(condition).Draw(t, "conditions"),
		}
	})
}

func pods() *rapid.Generator[gate.Pod] {
	return rapid.Custom(func(t *rapid.T) gate.Pod {
		return gate.Pod{
			Name: rapid.OneOf(texts(), rapid.SampledFrom([]string{"ns/p", "ns/p-1", "ns/p-2", "ns/p-", "-"})).Draw(t, "name"),
			UID:  types.UID(texts().Draw(t, "uid")), Owner: types.UID(texts().Draw(t, "owner")),
			Created: times().Draw(t, "created"), ReadySince: times().Draw(t, "ready"), MarkedSince: times().Draw(t, "marked"), TerminatingSince: times().Draw(t, "asked"),
			Ready: rapid.Bool().Draw(t, "is ready"), Terminating: rapid.Bool().Draw(t, "terminating"), Finished: rapid.Bool().Draw(t, "finished"), Mirror: rapid.Bool().Draw(t, "mirror"), Unlabelled: rapid.Bool().Draw(t, "unlabelled"),
			Incarnation: gate.Incarnation(rapid.Uint64().Draw(t, "incarnation")),
			Run:         rapid.SampledFrom([]gate.Run{{}, {Succeeded: rapid.Bool().Draw(t, "succeeded"), Started: times().Draw(t, "started"), Ended: times().Draw(t, "ended"), Boot: texts().Draw(t, "boot")}}).Draw(t, "run"),
		}
	})
}

// dictionaries generates Dictionaries, some of which soon become full and are replaced.
func dictionaries(t *rapid.T) *Dictionaries {
	b := &Dictionaries{}
	b.current.Store(newDictionary(rapid.SampledFrom([]int{0, 3, entriesMax}).Draw(t, "entries"), rapid.SampledFrom([]int{5, refusalsMax}).Draw(t, "refusals")))
	return b
}

// Unpacking returns the facts that were packed, whatever else is packed before and
// afterwards.
func TestRoundTrip(t *testing.T) { rapid.Check(t, roundTrip) }

// FuzzPack searches for nodes and pods that differ after unpacking.
func FuzzPack(f *testing.F) {
	for seed := range 8 {
		data := make([]byte, 1<<16)                             // enough for eight nodes and eight pods; a test that runs out of data is skipped
		_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(data) // never fails
		f.Add(data)
	}
	f.Fuzz(rapid.MakeFuzz(roundTrip))
}

func roundTrip(t *rapid.T) {
	p := NewPacker(dictionaries(t))
	all := rapid.SliceOfN(nodes(), 1, 8).Draw(t, "nodes")
	var kept []*Node
	for i, n := range all {
		var known *Node
		if i > 0 && rapid.Bool().Draw(t, "known") {
			known = kept[rapid.IntRange(0, i-1).Draw(t, "which")]
		}
		kept = append(kept, p.Node(n, known))
	}
	for i, n := range all {
		back := kept[i].Unpack()
		if diff := cmp.Diff(n, back); diff != "" {
			t.Fatalf("node %d differs after unpacking:\n%s", i, diff)
		}
		if kept[i].Zone() != n.Zone() || kept[i].Silent() != n.Silent() || kept[i].Tainted() != (len(n.Taints) > 0) || kept[i].UID() != n.UID || kept[i].BootID() != n.BootID || kept[i].ResourceVersion() != n.ResourceVersion {
			t.Fatalf("a field that can be read without unpacking differs from %+v", n)
		}
	}
	for _, pod := range rapid.SliceOfN(pods(), 1, 8).Draw(t, "pods") {
		packed := p.Pod(&pod)
		if diff := cmp.Diff(pod, packed.Unpack()); diff != "" || packed.Name() != pod.Name {
			t.Fatalf("pod %s differs after unpacking:\n%s", packed.Name(), diff)
		}
	}
}

// SameFacts returns true only for equal facts.
func TestSameFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewPacker(dictionaries(t))
		a := nodes().Draw(t, "a")
		b := nodes().Draw(t, "b")
		if rapid.Bool().Draw(t, "alike") {
			b = p.Node(a, nil).Unpack()
			b.ResourceVersion = texts().Draw(t, "version")
			for i := range b.Conditions {
				b.Conditions[i].Heartbeat = times().Draw(t, "heartbeat")
			}
		}
		if SameFacts(p.Node(a, nil), p.Node(b, nil)) && !sameExceptState(a, b) {
			t.Fatalf("SameFacts is true for different facts:\n%s", cmp.Diff(a, b))
		}
	})
}

func sameExceptState(a, b *gate.Node) bool {
	x, y := NewPacker(NewDictionaries()).Node(a, nil).Unpack(), NewPacker(NewDictionaries()).Node(b, nil).Unpack()
	for _, n := range []*gate.Node{x, y} {
		n.Name, n.ResourceVersion, n.HasAnnotations = "", "", false
		for i := range n.Conditions {
			n.Conditions[i].Heartbeat = time.Time{}
		}
	}
	return cmp.Equal(x, y)
}
