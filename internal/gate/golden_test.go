// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

var update = flag.Bool("update", false, "update testdata/*.out.yaml")

// scenario is a sequence of events on a node, from testdata/*.in.yaml. The decisions at
// each step, and at each requested recheck in between, are compared with the
// corresponding .out.yaml.
type scenario struct {
	About string         `json:"about"`
	Gates []scenarioGate `json:"gates"`
	Start event          `json:"start"`
	Steps []event        `json:"steps"`
}

type scenarioGate struct {
	Name     string                 `json:"name"`
	Taint    string                 `json:"taint"`
	Again    string                 `json:"again"`    // recloseTaint
	WaitsFor []string               `json:"waitsFor"` // agents, or flags if they begin with "flag "
	Closes   bool                   `json:"closes"`   // closeWhen gate
	Manual   bool                   `json:"manual"`
	Reclose  v1alpha1.ReclosePolicy `json:"reclose"`
	Existing v1alpha1.ExistingNodes `json:"existing"`
	// Seconds.
	MinClosed int `json:"minClosed"`
	OpenAfter int `json:"openAfter"`
	// A deadline, in seconds, and whether it opens.
	PodMissing int  `json:"podMissing"`
	ReadyBy    int  `json:"readyBy"`
	Opens      bool `json:"opens"`
}

// event is something that happens to a node. Omitted fields do not change.
type event struct {
	At       float64                `json:"at"` // seconds since the beginning
	What     string                 `json:"what"`
	Open     []string               `json:"open"`
	Age      string                 `json:"age"`
	Boot     *string                `json:"boot"`
	Ready    *string                `json:"ready"`
	Shutdown *bool                  `json:"shutdown"`
	Zone     []int                  `json:"zone"` // nodes, unreachable nodes
	Pods     map[string]scenarioPod `json:"pods"`
	Flags    map[string]string      `json:"flags"`
	Taint    []string               `json:"taint"`
	Untaint  []string               `json:"untaint"`
	Gates    []string               `json:"gates"` // the gates that exist from now on
	Visible  *bool                  `json:"visible"`
	Down     *bool                  `json:"down"`  // whether nodegate is down
	Grant    []string               `json:"grant"` // the gates that may close from now on
	// Override contains the overrides from now on, with their duration. An empty state
	// removes the override.
	Override map[string]scenarioOverride `json:"override"`
	OptedOut *bool                       `json:"optedOut"`
}

type scenarioOverride struct {
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"`
}

type scenarioPod struct {
	Containers string `json:"containers"`
	Ready      bool   `json:"ready"`
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, in := range files {
		t.Run(strings.TrimSuffix(filepath.Base(in), ".in.yaml"), func(t *testing.T) {
			raw, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			var sc scenario
			if err := yaml.UnmarshalStrict(raw, &sc); err != nil {
				t.Fatal(err)
			}
			got := sc.play(t)
			out := strings.TrimSuffix(in, ".in.yaml") + ".out.yaml"
			if *update {
				if err := os.WriteFile(out, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("the result differs from %s; if it is correct, run with -update\n%s", out, got)
			}
		})
	}
}

// player runs one scenario.
type player struct {
	sim
	all     map[string]Gate
	down    bool
	recheck time.Time
	out     strings.Builder
}

func (sc *scenario) play(t *testing.T) []byte {
	p := &player{sim: *aNode(), all: map[string]Gate{}}
	for _, g := range sc.Gates {
		p.all[g.Name] = g.compile()
		p.gates = append(p.gates, p.all[g.Name])
	}
	p.happen(sc.Start)
	for _, e := range sc.Steps {
		at := epoch.Add(time.Duration(e.At * float64(time.Second)))
		p.wait(t, at)
		p.now = at
		p.happen(e)
		p.show(t, e.What)
	}
	p.wait(t, p.now.Add(time.Hour))
	return []byte("# " + strings.TrimSpace(sc.About) + "\n" + p.out.String())
}

func (g scenarioGate) compile() Gate {
	options := []func(*Gate){func(out *Gate) {
		if g.Reclose != "" {
			out.Reclose = g.Reclose
		}
		if g.Existing != "" {
			out.Existing = g.Existing
		}
		out.CloseWhen, out.Manual = g.Closes, g.Manual
		out.MinClosed, out.OpenAfter = time.Duration(g.MinClosed)*time.Second, time.Duration(g.OpenAfter)*time.Second
		out.Deadline = Deadline{
			PodMissing: time.Duration(g.PodMissing) * time.Second, Ready: time.Duration(g.ReadyBy) * time.Second, Open: g.Opens,
		}
		out.Signals = nil
		for _, name := range g.WaitsFor {
			var s Signal = agent(name)
			if f, ok := strings.CutPrefix(name, "flag "); ok {
				s = flagSignal(f)
			}
			out.Signals = append(out.Signals, NamedSignal{Name: name, Signal: s})
		}
	}}
	if g.Taint != "" {
		options = append(options, tainting(g.Taint))
	}
	if g.Again != "" {
		options = append(options, recloseTainting(g.Again))
	}
	return aGate(g.Name, options...)
}

func (p *player) happen(e event) {
	if e.Age != "" {
		age, err := time.ParseDuration(e.Age)
		if err != nil {
			panic(err)
		}
		p.age(age)
	}
	if e.Boot != nil {
		p.boot(*e.Boot)
	}
	if e.Ready != nil {
		p.ready(*e.Ready)
	}
	if e.Shutdown != nil {
		p.shuttingDown(*e.Shutdown)
	}
	if len(e.Zone) == 2 {
		p.zone(e.Zone[0], e.Zone[1])
	}
	for name, pod := range e.Pods {
		p.pod(name, pod.Containers, pod.Ready)
	}
	for name, value := range e.Flags {
		p.flag(name, value)
	}
	for _, text := range e.Untaint {
		p.untaint(text)
	}
	p.taint(e.Taint...)
	if e.Grant != nil {
		p.granting(e.Grant...)
	}
	p.applyGateChanges(e)
	p.applyUserActions(e)
}

func (p *player) applyUserActions(e event) {
	for name, o := range e.Override {
		if p.endOverride(name); o.State != "" {
			p.override(name, o.State, time.Duration(o.Seconds*float64(time.Second)))
		}
	}
	if e.OptedOut != nil {
		p.label(v1alpha1.OptOutLabel, fmt.Sprint(*e.OptedOut))
	}
}

func (p *player) applyGateChanges(e event) {
	if e.Gates != nil {
		p.gates = nil
		for _, name := range e.Gates {
			p.gates = append(p.gates, p.all[name])
		}
	}
	if e.Visible != nil {
		p.facts.CompleteSources = map[string]bool{v1alpha1.SourceCRD: *e.Visible}
	}
	if e.Down != nil {
		p.down = *e.Down
		p.forget()
		p.facts.Boot = Boot{Seen: p.now}
		p.recheck = time.Time{}
	}
	for _, name := range e.Open {
		p.record(name, v1alpha1.StateOpen, func(r *Record) {
			r.Boot, r.Taint = p.facts.Node.BootID, TaintText(p.all[name].Taint)
		})
	}
}

// wait advances the time, and decides again at each requested recheck.
func (p *player) wait(t *testing.T, until time.Time) {
	for !p.recheck.IsZero() && p.recheck.Before(until) {
		if p.recheck.Before(p.now) {
			t.Fatalf("requests a recheck at %s, which has passed", p.recheck)
		}
		p.now = p.recheck
		p.show(t, "(time has passed)")
	}
}

func (p *player) show(t *testing.T, what string) {
	seconds := func(at time.Time) string { return fmt.Sprintf("%gs", at.Sub(epoch).Seconds()) }
	fmt.Fprintf(&p.out, "- at: %s\n  what: %q\n", seconds(p.now), what)
	if p.down {
		return
	}
	d := p.run(t)
	if d.Changes {
		fmt.Fprint(&p.out, "  write: true\n")
	}
	fmt.Fprintf(&p.out, "  taints: %s\n  gates:\n", strings.ReplaceAll(taintTexts(d.Taints), " ", ", "))
	for i := range d.Verdicts {
		fmt.Fprintf(&p.out, "  - %q\n", showVerdict(&d.Verdicts[i]))
	}
	next := p.decide() // which the write causes
	if p.recheck = next.Recheck; next.Again {
		p.recheck = p.now
	}
	if !p.recheck.IsZero() {
		fmt.Fprintf(&p.out, "  recheck: %s\n", seconds(p.recheck))
	}
}
