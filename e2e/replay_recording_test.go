// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// recording contains the writes to the API server while the machine of a real kubelet
// rebooted. testdata/replay/*.txt describes how they were recorded.
type recording struct {
	rows []row
	// began is the time of day at the beginning.
	began time.Duration
	// planned maps recorded times to times of the replay, both since the beginning. The
	// points are in order, and times between them are interpolated linearly.
	planned []point
}

type point struct{ recorded, replayed time.Duration }

// row is one recorded write, or a state at the beginning.
type row struct {
	at     time.Duration
	author author
	object string
	// state is the resulting state in the format of the recording.
	state string
}

type author string

const (
	found     author = "found"
	byKubelet author = "kubelet"
	byCore    author = "core" // the node lifecycle controller
)

// maxGap is the longest time without any write; longer ones are shortened.
const maxGap = 2 * time.Second

func readRecording(name string) (*recording, error) {
	f, err := os.Open("testdata/replay/" + name + ".txt")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &recording{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0, fields[0] == "#", strings.HasPrefix(fields[0], "#"):
		case fields[0] == "began" && len(fields) == 2:
			if r.began, err = timeOfDay(fields[1]); err != nil {
				return nil, err
			}
		case len(fields) > 4:
			seconds, err := strconv.ParseFloat(fields[0], 64)
			if err != nil {
				return nil, fmt.Errorf("reading %q: %w", lines.Text(), err)
			}
			at := time.Duration(seconds*1000+0.5) * time.Millisecond
			r.rows = append(r.rows, row{at, author(fields[1]), fields[2], strings.Join(fields[3:], " ")})
		default:
			return nil, fmt.Errorf("reading %q: not a row", lines.Text())
		}
	}
	r.plan()
	return r, nil
}

// plan shortens long times without a write, except while the node is unreachable.
func (r *recording) plan() {
	r.planned = []point{{}}
	unreachable := false
	last := point{}
	for _, row := range r.rows {
		gap := row.at - last.recorded
		if !unreachable {
			gap = min(gap, maxGap)
		}
		last = point{row.at, last.replayed + gap}
		r.planned = append(r.planned, last)
		if row.object == "node" {
			unreachable = strings.Contains(row.state, "Ready=Unknown")
		}
	}
}

// when returns the time, since the beginning, at which a row is replayed.
func (r *recording) when(recorded time.Duration) time.Duration {
	for i := 1; i < len(r.planned); i++ {
		a, b := r.planned[i-1], r.planned[i]
		if recorded >= a.recorded && recorded < b.recorded {
			share := float64(recorded-a.recorded) / float64(b.recorded-a.recorded)
			return a.replayed + time.Duration(share*float64(b.replayed-a.replayed))
		}
	}
	if recorded < 0 {
		return recorded
	}
	last := r.planned[len(r.planned)-1]
	return last.replayed + recorded - last.recorded
}

// podsFirst returns a recording in which the kubelet reports the pods of the new boot before
// the new boot ID: the kubelet writes both in independent loops. The order of the writes of
// each loop does not change.
func (r *recording) podsFirst() *recording {
	const earlier = 1500 * time.Millisecond
	reordered := &recording{began: r.began, rows: slices.Clone(r.rows)}
	boot := r.index(r.newBoot())
	first := slices.IndexFunc(r.rows[boot:], func(row row) bool { return row.author == byKubelet && row.object != "node" })
	for i := range reordered.rows {
		if row := &reordered.rows[i]; i >= boot+first && row.author == byKubelet && row.object != "node" {
			row.at -= earlier
		}
	}
	slices.SortStableFunc(reordered.rows, func(a, b row) int { return int(a.at - b.at) })
	reordered.plan()
	return reordered
}

func (r *recording) index(want row) int { return slices.Index(r.rows, want) }

// first returns the first row after the beginning that matches, or the zero row.
func (r *recording) first(matches func(row) bool) row {
	for _, row := range r.rows {
		if row.author != found && matches(row) {
			return row
		}
	}
	return row{}
}

// bootOf returns the boot ID in a node's row.
func bootOf(row row) string { return nodeRow.FindStringSubmatch(row.state)[1] }

// oldBoot returns the boot ID at the beginning.
func (r *recording) oldBoot() string {
	return bootOf(r.rows[slices.IndexFunc(r.rows, func(row row) bool { return row.object == "node" })])
}

// newBoot returns the write with the new boot ID.
func (r *recording) newBoot() row {
	return r.first(func(row row) bool { return row.object == "node" && bootOf(row) != r.oldBoot() })
}

// unreachable returns the write that reports the node as unreachable.
func (r *recording) unreachable() row {
	return r.first(func(row row) bool { return row.object == "node" && strings.Contains(row.state, "Ready=Unknown") })
}

// proof returns the write that proves that the agent of the new boot is ready.
func (r *recording) proof() row {
	return r.first(func(row row) bool { return row.object == "agent" && strings.Contains(row.state, "Ready=True") })
}

// nodeState and podState are the parsed states of rows.
type nodeState struct {
	boot              string
	ready             corev1.ConditionStatus
	reason            string
	heartbeat, change time.Duration
	taints            []corev1.Taint
}

type podState struct {
	ready           corev1.ConditionStatus
	change, started time.Duration
	running         bool
	container       string
	restarts        int32
}

var (
	nodeRow = regexp.MustCompile(`^boot=(\w+) Ready=(\w+)\((\w+),hb=([\d:]+),tr=([\d:]+)\) taints=\[(.*)\]$`)
	podRow  = regexp.MustCompile(`^phase=Running Ready=(\w+)\(tr=([\d:]+)\) (running|terminated)=([\d:]+) cid=(\w+) rc=(\d+)$`)
)

// readNode parses a node's row. Times are relative to the beginning.
func (r *recording) readNode(row row) (nodeState, error) {
	m := nodeRow.FindStringSubmatch(row.state)
	if m == nil {
		return nodeState{}, fmt.Errorf("reading %q: not a node", row.state)
	}
	heartbeat, err := timeOfDay(m[4])
	if err != nil {
		return nodeState{}, err
	}
	change, err := timeOfDay(m[5])
	if err != nil {
		return nodeState{}, err
	}
	s := nodeState{boot: m[1], ready: corev1.ConditionStatus(m[2]), reason: m[3], heartbeat: heartbeat - r.began, change: change - r.began}
	for text := range strings.SplitSeq(m[6], ",") {
		if key, effect, ok := strings.Cut(text, ":"); ok {
			s.taints = append(s.taints, corev1.Taint{Key: "node.kubernetes.io/" + key, Effect: corev1.TaintEffect(effect)})
		}
	}
	return s, nil
}

// readPod parses a pod's row.
func (r *recording) readPod(row row) (podState, error) {
	m := podRow.FindStringSubmatch(row.state)
	if m == nil {
		return podState{}, fmt.Errorf("reading %q: not a pod", row.state)
	}
	change, err := timeOfDay(m[2])
	if err != nil {
		return podState{}, err
	}
	started, err := timeOfDay(m[4])
	if err != nil {
		return podState{}, err
	}
	restarts, err := strconv.ParseInt(m[6], 10, 32)
	if err != nil {
		return podState{}, err
	}
	return podState{
		ready: corev1.ConditionStatus(m[1]), change: change - r.began, started: started - r.began,
		running: m[3] == "running", container: m[5], restarts: int32(restarts),
	}, nil
}

func timeOfDay(text string) (time.Duration, error) {
	at, err := time.Parse("15:04:05", text)
	if err != nil {
		return 0, fmt.Errorf("reading time of day: %w", err)
	}
	return at.Sub(at.Truncate(24 * time.Hour)), nil
}

// stamps matches times of day, which differ in a replay.
var stamps = regexp.MustCompile(`\d\d:\d\d:\d\d`)

// transitions returns the successive states of all objects, without times, so that heartbeats
// are omitted.
func (r *recording) transitions() (lines []string) {
	last := make(map[string]string)
	for _, row := range r.rows {
		line := row.object + " " + stamps.ReplaceAllString(row.state, "-")
		if last[row.object] != line && (row.author != found || last[row.object] == "") {
			last[row.object] = line
			if row.author != found {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// The recordings have the times that the documentation and the core's golden scenarios state,
// and podsFirst does not reorder the writes of a loop.
func TestRecordings(t *testing.T) {
	for name, want := range map[string][3]time.Duration{ // unreachable, new boot, proof
		"reboot-quick":    {0, 6720, 14630},
		"reboot-60s":      {45080, 63710, 71610},
		"kubelet-restart": {},
	} {
		r, err := readRecording(name)
		if err != nil {
			t.Fatal(err)
		}
		got := [3]time.Duration{r.unreachable().at, r.newBoot().at, r.proof().at}
		for i := range want {
			want[i] *= time.Millisecond
		}
		if got != want {
			t.Errorf("%s: unreachable, new boot and proof at %v, want %v", name, got, want)
		}
		for _, row := range r.rows {
			_, nodeErr := r.readNode(row)
			if _, podErr := r.readPod(row); (nodeErr == nil) == (podErr == nil) {
				t.Errorf("%s: %q must be the state of either a node or a pod", name, row.state)
			}
		}
		if r.newBoot().at == 0 {
			continue
		}
		reordered := r.podsFirst()
		if early := reordered.first(func(row row) bool { return row.object == "agent" && strings.Contains(row.state, "terminated") }); early.at >= reordered.newBoot().at {
			t.Errorf("%s: the agent terminates at %v, want before the new boot at %v", name, early.at, reordered.newBoot().at)
		}
		for _, r := range []*recording{r, reordered} {
			for i := 1; i < len(r.rows); i++ {
				recorded, replayed := r.rows[i].at-r.rows[i-1].at, r.when(r.rows[i].at)-r.when(r.rows[i-1].at)
				if want := min(recorded, maxGap); replayed != want && replayed != recorded {
					t.Errorf("%s: %v between two writes is replayed as %v, want %v", name, recorded, replayed, want)
				}
			}
		}
	}
}
