// SPDX-License-Identifier: Apache-2.0

package bypass

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/telemetry"
)

// A list of pods is divided by what happened to them, and only pods that started may be evicted.
func TestFind(t *testing.T) {
	opened := time.Now()
	c := &gate.Closure{Taint: v1alpha1.Taint{Key: "a", Effect: "NoSchedule"}, From: opened.Add(-time.Minute), Until: opened}
	ago := func(d time.Duration) time.Time { return opened.Add(-d) }
	rejected := func(name string, at time.Time, owned bool) gate.BoundPod {
		return gate.BoundPod{Name: name, Finished: true, Owned: owned, Rejection: &gate.Rejection{Reason: "UnexpectedAdmissionError", Reported: at}}
	}
	ran := func(name string, at time.Time, owned bool) gate.BoundPod {
		return gate.BoundPod{Name: name, Owned: owned, Starts: []gate.Start{{At: at, Running: true}}}
	}
	f := find(c, []gate.BoundPod{
		ran("early", ago(9*time.Second), true), ran("early-bare", ago(9*time.Second), false), ran("close", opened, true), ran("before", ago(time.Hour), true),
		rejected("lost", ago(9*time.Second), false), rejected("replaced", ago(9*time.Second), true),
		rejected("unclear", opened, true), rejected("former", ago(time.Hour), false),
	})
	for what, c := range map[string]struct {
		got  pods
		want string
	}{
		"certainly bypassed":    {f.bypassed.certain, "/early, /early-bare"},
		"possibly bypassed":     {f.bypassed.possible, "/close"},
		"certainly rejected":    {f.rejected.certain, "/lost, /replaced"},
		"possibly rejected":     {f.rejected.possible, "/unclear"},
		"evictable":             {f.evictable(), "/early"},
		"without a controller":  {f.rejected.certain.owned(false), "/lost"},
		"with a controller":     {f.rejected.certain.owned(true), "/replaced"},
		"none of the last list": {f.rejected.possible.owned(false), ""},
	} {
		if got := c.got.names(); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if only := (found{rejected: f.rejected}); !f.any() || !only.any() || (&found{}).any() {
		t.Error("it is not clear whether there are any pods")
	}
}

// The note about many rejected pods fits into an Event, and names lost pods first.
func TestRejectedNote(t *testing.T) {
	var b byCertainty
	for i := range 50 {
		b.add(gate.Certain, &gate.BoundPod{
			Namespace: "jobs", Name: fmt.Sprintf("pod-%02d", i), Owned: i < 30, Rejection: &gate.Rejection{Reason: "OutOfnvidia.com/gpu"},
		})
	}
	note := rejectedNote("gpus", &b)
	if want := "the kubelet rejected 20 pods while gate gpus was closed, and no controller replaces them: jobs/pod-30 (OutOfnvidia.com/gpu), "; !strings.HasPrefix(note, want) {
		t.Errorf("got  %s\nwant %s…", note, want)
	}
	if want := "and 10 more; the kubelet rejected 30 pods while gate gpus was closed, and their controllers may replace them: jobs/pod-00 (OutOfnvidia.com/gpu), "; !strings.Contains(note, want) {
		t.Errorf("got  %s\nwant …%s…", note, want)
	}
	if len(note) > telemetry.EventNoteMax {
		t.Errorf("the note has %d bytes, want at most %d", len(note), telemetry.EventNoteMax)
	}
}

// After a reboot, pods are searched for when the kubelet has reported rejections, which takes
// longer than to report starts.
func TestSearchDelay(t *testing.T) {
	opened := time.Now()
	for name, c := range map[string]struct {
		from    time.Duration // before the opening
		newBoot bool
		want    time.Duration
	}{
		"opened soon after a reboot":  {3 * time.Second, true, gate.RejectionLag - 3*time.Second},
		"opened long after a reboot":  {time.Hour, true, minSearchDelay},
		"opened without a reboot":     {3 * time.Second, false, minSearchDelay},
		"opened when the boot began":  {0, true, gate.RejectionLag},
		"opened just after the limit": {gate.RejectionLag - minSearchDelay + 1, true, minSearchDelay},
	} {
		if got := searchDelay(&gate.Closure{From: opened.Add(-c.from), Until: opened, NewBoot: c.newBoot}); got != c.want {
			t.Errorf("%s: after %s, want %s", name, got, c.want)
		}
	}
}

// A search that was scheduled for an earlier opening of the gate does not come before that of the
// newest one is due, and does not replace it.
func TestSearchIsNotEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Clock: clock.RealClock{}}) // any search would panic, because there are no gates
		defer b.queue.ShutDown()
		for range 2 {
			b.Opened(&gate.Node{Name: "a"}, &gate.Verdict{Gate: "gate", Closure: &gate.Closure{}})
			<-time.After(minSearchDelay - time.Second)
			b.workOn(t.Context(), key{node: "a", gate: "gate"})
		}
		if b.Waiting() != 1 {
			t.Errorf("%d openings are waiting, want 1", b.Waiting())
		}
	})
}

// Rejected pods that only a later search finds are reported, too, and nothing is reported twice.
func TestEachKindIsReportedOnce(t *testing.T) {
	p := pods{{}}
	bypassed, both := found{bypassed: byCertainty{certain: p}}, found{bypassed: byCertainty{certain: p}, rejected: byCertainty{possible: p}}
	var o opening
	for i, c := range []struct {
		found              found
		bypassed, rejected bool
	}{
		{found{}, false, false}, {bypassed, true, false}, {bypassed, false, false}, {both, false, true}, {both, false, false},
	} {
		news := o.unreported(c.found)
		if news.bypassed.any() != c.bypassed || news.rejected.any() != c.rejected {
			t.Errorf("search %d: reported are %+v", i, news)
		}
	}
}
