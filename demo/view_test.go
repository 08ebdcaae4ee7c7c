// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

const midwayTable = `                         held by  held by  held by         pods
        nodes  joining  cni+init      cni     init  open  bound
wave 1     15        .         .        .        .    15     30
wave 2     15        .         2        1        3     9     16
wave 3     15        4        11        .        .     .      .
wave 4      .        .         .        .        .     .      .
all        45        4        13        1        3    24     46
24/60 nodes open, 46/120 pods bound, 9s
`

func TestTable(t *testing.T) {
	midway := snapshot{
		elapsed: 9400 * time.Millisecond, nodes: 60, podsWanted: 120,
		waves: [waveCount]waveCounts{
			{states: [states]int{open: 15}, pods: 30},
			{states: [states]int{heldByBoth: 2, heldByCNI: 1, heldByInit: 3, open: 9}, pods: 16},
			{states: [states]int{joining: 4, heldByBoth: 11}},
			{},
		},
	}
	var out bytes.Buffer
	v := &view{out: &out, inPlace: true}
	v.show(&midway, false)
	v.show(&midway, true)
	once := strings.ReplaceAll(midwayTable, "\n", "\x1b[K\n")
	if want := once + "\x1b[8A" + once; out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
	if first, _, _ := strings.Cut(midwayTable, "\n"); len(first) != tableWidth {
		t.Errorf("the table is %d wide, want %d", len(first), tableWidth)
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	v := &view{out: &out}
	at := func(elapsed time.Duration, opened int, last bool) {
		v.show(&snapshot{elapsed: elapsed, nodes: 2, podsWanted: 4, waves: [waveCount]waveCounts{
			{states: [states]int{heldByCNI: 2 - opened, open: opened}, pods: 2 * opened},
		}}, last)
	}
	at(0, 0, false)
	at(300*time.Millisecond, 1, false) // too soon
	at(1200*time.Millisecond, 1, false)
	at(3*time.Second, 1, false) // no change
	at(4*time.Second, 2, false)
	at(4100*time.Millisecond, 1, true) // too soon, but the last
	const want = `   0s  nodes 2/2: joining 0, held by cni+init 0, by cni 2, by init 0, open 0; pods bound 0/4
   1s  nodes 2/2: joining 0, held by cni+init 0, by cni 1, by init 0, open 1; pods bound 2/4
   4s  nodes 2/2: joining 0, held by cni+init 0, by cni 0, by init 0, open 2; pods bound 4/4
   4s  nodes 2/2: joining 0, held by cni+init 0, by cni 1, by init 0, open 1; pods bound 2/4
`
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
}
