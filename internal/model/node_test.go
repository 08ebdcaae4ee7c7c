// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
)

// The current time is constant. Time passes by making everything else older, so that
// states that differ only in the time at which they were reached are equal.
var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// age is the time since an event, in seconds.
type age int32

const (
	minute age = 60
	day    age = 24 * 60 * minute
	// long exceeds every wait of these settings. Older events have this age.
	long age = 100
)

func (a age) time() time.Time { return now.Add(-time.Duration(a) * time.Second) }

func ageOf(t time.Time) age { return age(now.Sub(t) / time.Second) }

// older returns the age after the given time.
func (a age) older(by age) age { return min(a+by, max(a, long)) }

// node is a Node in the API server. Nodes can be compared by value.
type node struct {
	uid, boot int8
	// selected and fit are its labels.
	selected, fit bool
	ready         liveness
	// since is how long ready has had its value.
	since, created age
	marks          *marks
}

type liveness int8

const (
	isReady liveness = iota
	isNotReady
	isShuttingDown
	isUnknown
)

// marks are the taints and annotations of a Node. Equal marks are the same pointer.
type marks struct {
	taints      []corev1.Taint
	annotations map[string]string
	records     map[string]gate.Record
}

func (m *marks) has(key string) bool {
	return slices.ContainsFunc(m.taints, func(t corev1.Taint) bool { return t.Key == key })
}

// api is the model of the API server. It caches results, because the same requests
// occur in many states.
type api struct {
	marksByText map[string]*marks
	agedMarks   map[agedMarks]*marks
	objects     map[node]*corev1.Node
	facts       map[node]*gate.Node
	writes      map[nodeWrite]written
}

type agedMarks struct {
	marks *marks
	by    age
}

// nodeWrite is a patch of a Node.
type nodeWrite struct {
	node  node
	patch string
}

// written is the result of a write: rejected, or the Node's new marks. beyond is true
// if anything else was changed.
type written struct {
	marks           *marks
	refused, beyond bool
}

func newAPI() *api {
	return &api{
		marksByText: make(map[string]*marks), agedMarks: make(map[agedMarks]*marks),
		objects: make(map[node]*corev1.Node), facts: make(map[node]*gate.Node), writes: make(map[nodeWrite]written),
	}
}

// marks returns the marks with these taints and annotations.
func (a *api) marks(taints []corev1.Taint, annotations map[string]string) *marks {
	var b strings.Builder
	for _, t := range taints {
		fmt.Fprintf(&b, "%s=%s:%s", t.Key, t.Value, t.Effect)
		if t.TimeAdded != nil {
			fmt.Fprint(&b, "@", t.TimeAdded.Unix())
		}
		b.WriteByte('\n')
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		b.WriteString(key + annotations[key] + "\n")
	}
	text := b.String()
	if m, known := a.marksByText[text]; known {
		return m
	}
	m := &marks{taints: taints, annotations: annotations, records: make(map[string]gate.Record)}
	for key, raw := range annotations {
		if name, ok := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); ok {
			r, err := gate.ParseRecord(raw)
			if err != nil {
				panic(err)
			}
			m.records[name] = r
		}
	}
	a.marksByText[text] = m
	return m
}

// aged returns the marks after the given time.
func (a *api) aged(m *marks, by age) *marks {
	key := agedMarks{m, by}
	if known, ok := a.agedMarks[key]; ok {
		return known
	}
	taints, annotations := slices.Clone(m.taints), maps.Clone(m.annotations)
	for i, t := range taints {
		if t.TimeAdded != nil {
			taints[i].TimeAdded = &metav1.Time{Time: ageOf(t.TimeAdded.Time).older(by).time()}
		}
	}
	for name, r := range m.records {
		annotations[v1alpha1.RecordAnnotationPrefix+name] = agedRecord(r, by)
	}
	out := a.marks(taints, annotations)
	a.agedMarks[key] = out
	return out
}

// agedRecord returns a record after the given time. The age of contention matters for
// an hour.
func agedRecord(r gate.Record, by age) string {
	if !r.Since.IsZero() {
		r.Since = ageOf(r.Since).older(by).time()
	}
	if !r.FoughtAt.IsZero() {
		r.FoughtAt = (ageOf(r.FoughtAt) + by).time()
	}
	return r.String()
}

const poolLabel, fitLabel = "pool", "fit"

func bootID(n int8) string { return fmt.Sprint("boot", n) }

// object returns the Node as an API object.
func (a *api) object(n node) *corev1.Node {
	if known, ok := a.objects[n]; ok {
		return known
	}
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: types.UID(fmt.Sprint("uid", n.uid)), Labels: map[string]string{poolLabel: "cpu"},
			CreationTimestamp: metav1.NewTime(n.created.time()),
			Annotations:       n.marks.annotations,
		},
		Spec: corev1.NodeSpec{Taints: n.marks.taints},
	}
	if n.selected {
		o.Labels[poolLabel] = "gpu"
	}
	if n.fit {
		o.Labels[fitLabel] = "yes"
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, LastTransitionTime: metav1.NewTime(n.since.time())}
	ready.Status = [...]corev1.ConditionStatus{isReady: corev1.ConditionTrue, isNotReady: corev1.ConditionFalse, isShuttingDown: corev1.ConditionFalse, isUnknown: corev1.ConditionUnknown}[n.ready]
	if n.ready == isShuttingDown {
		ready.Message = "node is shutting down"
	}
	o.Status.Conditions, o.Status.NodeInfo.BootID = []corev1.NodeCondition{ready}, bootID(n.boot)
	a.objects[n] = o
	return o
}

// factsOf returns the Node as decisions see it.
func (a *api) factsOf(n node) *gate.Node {
	f, known := a.facts[n]
	if !known {
		f = read.NodeFacts(a.object(n))
		a.facts[n] = f
	}
	return f
}

// patch applies a JSON Patch. It applies nothing if a test in the patch fails, or if
// the Node would have two taints with the same key and effect.
func (a *api) patch(n node, patch string) written {
	n.since, n.created = 0, 0 // no patch tests these
	key := nodeWrite{n, patch}
	if known, ok := a.writes[key]; ok {
		return known
	}
	out := a.applied(n, patch)
	a.writes[key] = out
	return out
}

func (a *api) applied(n node, patch string) written {
	before := a.object(n)
	raw, err := json.Marshal(before)
	if err != nil {
		panic(err)
	}
	p, err := jsonpatch.DecodePatch([]byte(patch))
	if err != nil {
		panic(err)
	}
	if raw, err = p.Apply(raw); err != nil {
		return written{refused: true}
	}
	var o corev1.Node
	if err := json.Unmarshal(raw, &o); err != nil {
		panic(err)
	}
	ids := make(map[gate.TaintID]bool)
	for _, t := range o.Spec.Taints {
		id := gate.TaintID{Key: t.Key, Effect: t.Effect}
		if ids[id] {
			return written{refused: true}
		}
		ids[id] = true
	}
	out := written{marks: a.marks(o.Spec.Taints, o.Annotations)}
	o.Spec.Taints, o.Annotations = before.Spec.Taints, before.Annotations
	out.beyond = !equality.Semantic.DeepEqual(&o, before)
	return out
}
