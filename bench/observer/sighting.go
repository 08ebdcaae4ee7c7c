// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// An Aspect is a property that an object can have.
type Aspect uint8

// Of a node: whether it has the gate's taint or not. Of a pod of the benchmark's
// namespace: whether it is ready or not, and whether it is bound to a node. Of
// either: that it is gone.
const (
	Tainted Aspect = iota
	Open
	Ready
	Unready
	Bound
	Gone
)

// cut is seen of a watch, by its address: the API server ended it.
const cut = Gone + 1

// String is what it is called in messages.
func (a Aspect) String() string {
	return [...]string{"tainted", "open", "ready", "unready", "bound", "gone", "cut off"}[a]
}

// A Sighting is the time at which an object was seen to get an aspect.
type Sighting struct {
	What Aspect
	Name string
	At   time.Time
}

func (s Sighting) appendLine(line []byte) []byte {
	line = strconv.AppendInt(line, int64(s.What), 10)
	line = append(append(append(line, ' '), s.Name...), ' ')
	return append(strconv.AppendInt(line, s.At.UnixNano(), 10), '\n')
}

func parseSighting(line string) (Sighting, error) {
	what, rest, _ := strings.Cut(line, " ")
	name, at, _ := strings.Cut(rest, " ")
	aspect, err := strconv.ParseUint(what, 10, 8)
	nanoseconds, badTime := strconv.ParseInt(at, 10, 64)
	if err != nil || badTime != nil || aspect > uint64(cut) {
		return Sighting{}, fmt.Errorf("reading a sighting: %q", line)
	}
	return Sighting{Aspect(aspect), name, time.Unix(0, nanoseconds)}, nil
}
