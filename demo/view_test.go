// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// midway is a snapshot in the middle of a run.
func midway() snapshot {
	return snapshot{
		elapsed: 9400 * time.Millisecond, nodes: 60, podsWanted: 120,
		waves: []waveCounts{
			{states: [states]int{open: 15}, pods: 30},
			{states: [states]int{heldByBoth: 2, heldByCNI: 1, heldByInit: 3, open: 9}, pods: 16},
			{states: [states]int{joining: 4, heldByBoth: 11}},
			{},
		},
	}
}

const midwayFrame = `
                         held by  held by  held by         pods
        nodes  joining  cni+init      cni     init  open  bound
wave 1     15        .         .        .        .    15     30
wave 2     15        .         2        1        3     9     16
wave 3     15        4        11        .        .     .      .
wave 4      .        .         .        .        .     .      .
all        45        4        13        1        3    24     46

[####################===================.............] 24/60 open, pods 46/120, 9s
# open   = held or joining   . to come
`

const narrowFrame = `
                            pods
        nodes  held  open  bound
wave 1     15     .    15     30
wave 2     15     6     9     16
wave 3     15    11     .      .
wave 4      .     .     .      .
all        45    17    24     46

[###===..] 24/60 open, pods 46/120, 9s
# open   = held or joining   . to come
`

const tinyFrame = `
 24/60 open, pods 46/120
# open   = held or joini
`

func TestFrame(t *testing.T) {
	for _, test := range []struct {
		name  string
		width int
		want  string
	}{
		{"wide", 82, midwayFrame},
		{"narrow", 38, narrowFrame},
		{"tiny", 24, tinyFrame},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := midway()
			got := "\n" + strings.Join(frame(&s, test.width), "\n") + "\n"
			if got != test.want {
				t.Errorf("got:%swant:%s", got, test.want)
			}
		})
	}
}

func TestFrameIsNeverWiderThanTheTerminal(t *testing.T) {
	s := midway()
	for width := range 200 {
		for _, row := range frame(&s, width) {
			if len(row) > width {
				t.Errorf("at width %d there is a row of %d: %q", width, len(row), row)
			}
		}
	}
}

func TestScreenFitsTerminalOfAnySize(t *testing.T) {
	var out bytes.Buffer
	width, height := 80, 24
	s := newScreen(&out, func() (int, int) { return width, height })
	if got := out.String(); got != enterScreen {
		t.Errorf("it begins with %q, want %q", got, enterScreen)
	}
	for _, size := range [][2]int{{80, 24}, {30, 5}, {5, 1}, {0, 0}, {200, 60}} {
		width, height = size[0], size[1]
		out.Reset()
		s.show(midway())
		drawn := out.String()
		if !strings.HasPrefix(drawn, home) || !strings.HasSuffix(drawn, clearLine+clearBelow) {
			t.Errorf("at %v it draws %q", size, drawn)
		}
		if rows := strings.Count(drawn, "\n") + 1; rows > max(height, 1) {
			t.Errorf("at %v it draws %d rows", size, rows)
		}
	}
	width, height = 82, 24
	out.Reset()
	s.close()
	if want := leaveScreen + strings.TrimPrefix(midwayFrame, "\n"); out.String() != want {
		t.Errorf("it ends with %q, want %q", out.String(), want)
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	l := &lines{out: &out}
	at := func(elapsed time.Duration, opened int) {
		l.show(snapshot{elapsed: elapsed, nodes: 2, podsWanted: 4, waves: []waveCounts{
			{states: [states]int{heldByCNI: 2 - opened, open: opened}, pods: 2 * opened},
		}})
	}
	at(0, 0)
	at(300*time.Millisecond, 1)  // too soon
	at(1200*time.Millisecond, 1) // told now
	at(3*time.Second, 1)         // no change
	at(4*time.Second, 2)
	at(4100*time.Millisecond, 1) // too soon, but the last
	l.close()
	const want = `   0s  nodes 2/2: joining 0, held by cni+init 0, by cni 2, by init 0, open 0; pods bound 0/4
   1s  nodes 2/2: joining 0, held by cni+init 0, by cni 1, by init 0, open 1; pods bound 2/4
   4s  nodes 2/2: joining 0, held by cni+init 0, by cni 0, by init 0, open 2; pods bound 4/4
   4s  nodes 2/2: joining 0, held by cni+init 0, by cni 1, by init 0, open 1; pods bound 2/4
`
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
}

func TestLinesWithoutSnapshot(t *testing.T) {
	var out bytes.Buffer
	(&lines{out: &out}).close()
	if out.String() != "" {
		t.Errorf("got %q, want nothing", out.String())
	}
}
