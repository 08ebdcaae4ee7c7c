// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodegate/nodegate/internal/testbed"
)

func TestPlan(t *testing.T) {
	for _, count := range []int{8, 9, 60, 61, 500} {
		plans := planNodes(count)
		if !slices.Equal(plans, planNodes(count)) {
			t.Errorf("%d nodes: two plans differ", count)
		}
		waves := map[int]int{}
		names := map[string]bool{}
		stuck, together, apart := 0, 0, 0
		for _, p := range plans {
			waves[p.wave]++
			names[p.name] = true
			if p.stuck {
				stuck++
				if p.wave != 1 || p.cloud {
					t.Errorf("%d nodes: the stuck node is %+v", count, p)
				}
			}
			if p.cni == p.init {
				together++
			} else {
				apart++
			}
			if p.cni < time.Second || p.init > 8*time.Second {
				t.Errorf("%d nodes: %+v", count, p)
			}
		}
		if len(plans) != count || len(names) != count || len(waves) != waveCount || stuck != 1 {
			t.Errorf("%d nodes: %d plans, %d names, waves %v, %d stuck", count, len(plans), len(names), waves, stuck)
		}
		for wave, nodes := range waves {
			if nodes < count/waveCount || nodes > count/waveCount+1 {
				t.Errorf("%d nodes: wave %d has %d", count, wave, nodes)
			}
		}
		if count >= 60 && (together == 0 || apart == 0) {
			t.Errorf("%d nodes: both daemons become ready together on %d nodes and apart on %d", count, together, apart)
		}
	}
}

// The daemons must tolerate the taints of both gates; otherwise no gate would
// ever open. Each gate waits for one of the daemons.
func TestDeclaredObjectsFitTogether(t *testing.T) {
	gates, err := demoGates()
	if err != nil {
		t.Fatal(err)
	}
	if len(gates) != 2 || gates[0].name != "cni" || gates[1].name != "init" {
		t.Fatalf("gates are %+v, want cni and init: the view knows these", gates)
	}
	objects, err := testbed.ParseObjects(daemonsYAML)
	if err != nil {
		t.Fatal(err)
	}
	for i, object := range objects {
		var ds appsv1.DaemonSet
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &ds); err != nil {
			t.Fatal(err)
		}
		if d := gates[i].daemonSet; d.Namespace != ds.Namespace || d.Name != ds.Name {
			t.Errorf("gate %s waits for %s, not for %s", gates[i].name, d, ds.Name)
		}
		for _, taint := range []corev1.Taint{gates[0].taint, gates[1].taint, setUpTaint} {
			if !tolerates(ds.Spec.Template.Spec.Tolerations, taint) {
				t.Errorf("%s does not tolerate %s", ds.Name, taint.Key)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"--nodes=7"}, {"--nodes=501"}, {"--nodes=x"}, {"--unknown"}, {"word"}, {"--help"}} {
		if o, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q parses as %+v, want an error", args, o)
		}
	}
	o, err := parse([]string{"--nodes", "8", "--keep", "--plain"}, io.Discard)
	if err != nil || *o != (options{nodes: 8, keep: true, plain: true}) {
		t.Errorf("got %+v, %v", o, err)
	}
}
