// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

// Of Nodes, zones, racks and gates that come and go under ever new names, a leader keeps nothing, in
// no field and no metric. Meanwhile, writes fail, and Nodes are listed again.
func TestNothingIsKeptOfWhatIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := mentions(churn(t, 1, false), "churned")
		for _, where := range []string{
			".nodes.byName[key]", ".ledger.nodes[key]", ".ledger.gates[].zones[key].zone", ".groups.gates[].groups[key]",
			".ledger.gates[].zones[].queue.at[key]", ".set.Declared[key]", ".metrics.zones[][]", ".metrics.Used.MetricVec.metricMap.metrics[][].values[]",
		} {
			if kept[where] == 0 {
				t.Errorf("%s has no text about what exists: the test does not find it", where)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		for where, n := range mentions(churn(t, 5, true), "churned") {
			t.Errorf("%s has %d texts about what was deleted", where, n)
		}
	})
}

// churn returns a controller that has led, and has been stopped. If deletes is true, everything that
// was created has been deleted.
func churn(t *testing.T, rounds int, deletes bool) *Controller {
	w, pods := newWorld(t), newNodePods()
	w.pods = pods
	var attempts atomic.Int64
	w.fail = func(string) error {
		return []error{nil, write.ErrDenied, nil, nil, write.ErrConflict, nil, write.ErrUnanswered, nil, nil, write.ErrGone, nil}[attempts.Add(1)%11]
	}
	stop := w.start(logr.Discard(), interceptor.Funcs{})
	defer stop()
	for round := range rounds {
		w.setGates(true, slices.Concat(churnGates("stays"), churnGates(fmt.Sprint("churned-", round/2))[:3])...)
		w.addChurned(pods, round)
		controllertest.Pass(7 * time.Second)
		for name := range w.copies() {
			w.change(name, func(n *gate.Node) { delete(n.Labels, "fit"); n.Labels[corev1.LabelTopologyZone] += "-moved" })
		}
		controllertest.Pass(7 * time.Second)
		if !deletes {
			continue
		}
		w.setUnsynced(round%2 == 0)
		for name := range w.copies() {
			w.remove(name)
			w.c.NodeChanged(name, gate.Everything())
		}
		w.c.NodeChanged(fmt.Sprintf("churned-%d", round), gate.ChangeOf(gate.Aspect{Kind: gate.AspectPods})) // has a pod, but does not exist
		controllertest.Pass(time.Second)
		w.setUnsynced(false)
		w.c.GatesChanged()
	}
	if deletes {
		w.setGates(true, churnGates("stays")...)
		controllertest.Pass(2 * refreshInterval)
	}
	return w.c
}

// churnGates returns gates of all kinds that keep something of nodes. Their names begin with prefix.
func churnGates(prefix string) (all []*v1alpha1.NodeGate) {
	for i, change := range []func(*v1alpha1.NodeGateSpec){
		budget("1"),
		func(s *v1alpha1.NodeGateSpec) {
			s.OpenTogether = &v1alpha1.OpenTogether{LabelKey: "rack", AtLeast: intstr.FromInt32(2)}
		},
		withBypassedPods(v1alpha1.BypassedEvict),
		budget("100%"),
		func(s *v1alpha1.NodeGateSpec) { s.ExistingNodes = v1alpha1.ExistingCloseIfIdle },
		func(s *v1alpha1.NodeGateSpec) { s.Mode = v1alpha1.ModeDryRun },
		func(s *v1alpha1.NodeGateSpec) { s.Timing.OpenAfterSeconds = 5 },
		func(s *v1alpha1.NodeGateSpec) { s.CloseWhen, s.OpenWhen = s.OpenWhen, nil },
	} {
		ng := controllertest.Gate(fmt.Sprintf("%s-%d", prefix, i), change)
		ng.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
		ng.Spec.Taint.Key = fmt.Sprintf("test.nodegate.dev/%s-%d", prefix, i)
		all = append(all, ng)
	}
	return all
}

// addChurned adds nodes with new names. Every other one is older than the gates.
func (w *world) addChurned(pods *nodePods, round int) {
	for i := range 12 {
		name := fmt.Sprintf("churned-%d-%d", round, i)
		pods.set(name, started(1)...)
		w.change(name, func(n *gate.Node) {
			*n = gate.Node{
				Name: name, UID: types.UID("uid-of-" + name), BootID: "boot-of-" + name, Records: map[string]string{},
				Created:    time.Now().Add(-time.Hour * time.Duration(i%2)),
				Labels:     map[string]string{"fit": "", "rack": fmt.Sprintf("churned-%d-%d", round, i/4), corev1.LabelTopologyZone: fmt.Sprintf("churned-%d-%d", round, i/6)},
				Conditions: []gate.Condition{{Type: "Ready", Status: corev1.ConditionTrue}},
			}
		})
	}
}

// mentions returns how many texts contain a part, by where they are in what v refers to. It does not
// search functions and what stands for the API server.
func mentions(v any, part string) map[string]int {
	m := mentioned{part: part, found: make(map[string]int), seen: make(map[pointer]bool)}
	m.search("", reflect.ValueOf(v))
	return m.found
}

type mentioned struct {
	part  string
	found map[string]int
	seen  map[pointer]bool
}

type pointer struct {
	to reflect.Type
	at uintptr
}

func (m *mentioned) search(where string, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if strings.Contains(v.String(), m.part) {
			m.found[where]++
		}
	case reflect.Pointer:
		if p := (pointer{v.Type(), v.Pointer()}); !v.IsNil() && !m.seen[p] {
			m.seen[p] = true
			m.search(where, v.Elem())
		}
	case reflect.Interface:
		if !v.IsNil() {
			m.search(where, v.Elem())
		}
	case reflect.Struct:
		m.searchFields(where, v)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			m.search(where+"[]", v.Index(i))
		}
	case reflect.Map:
		for all := v.MapRange(); all.Next(); {
			m.search(where+"[key]", all.Key())
			m.search(where+"[]", all.Value())
		}
	}
}

func (m *mentioned) searchFields(where string, v reflect.Value) {
	of := v.Type()
	switch {
	case of == reflect.TypeFor[world](), of == reflect.TypeFor[nodePods](), strings.HasPrefix(of.PkgPath(), "sigs.k8s.io/controller-runtime/pkg/client"):
		return
	case of.PkgPath() == "sync/atomic" && strings.HasPrefix(of.Name(), "Pointer["):
		m.search(where, v.Addr().MethodByName("Load").Call(nil)[0])
		return
	}
	for i := range v.NumField() {
		field := v.Field(i)
		if field.CanAddr() { // a field that is not exported cannot be used otherwise
			field = reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
		}
		m.search(where+"."+of.Field(i).Name, field)
	}
}
