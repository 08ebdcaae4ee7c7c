// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// previousOf is Completions.Of of the version before creations were recorded.
func previousOf(c Completions, id string) time.Time {
	for entry := range strings.SplitSeq(string(c), " ") {
		if rest, ok := strings.CutPrefix(entry, id+"="); ok {
			if seconds, err := strconv.ParseInt(rest, 10, 64); err == nil {
				return time.Unix(seconds, 0).UTC()
			}
		}
	}
	return time.Time{}
}

// The previous version reads the ends of all successes. This version also reads the
// creations.
func TestPreviousVersionReadsSuccesses(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
	want := map[string]Success{"a1b2": {at(100), at(50)}, "c3d4": {at(110), at(60)}, "c3": {at(120), at(120)}}
	var c Completions
	for range 2 { // no entry is written twice
		for id, s := range want {
			c.Add(id, s)
		}
	}
	for id, s := range want {
		if got := previousOf(c, id); !got.Equal(s.Ended) {
			t.Errorf("in %q, the previous version reads %s as %s, want %s", c, id, got, s.Ended)
		}
		if got := c.Of(id); got != s {
			t.Errorf("in %q, %s is %v, want %v", c, id, got, s)
		}
	}
	if got := len(strings.Fields(string(c))); got != 2*len(want) {
		t.Errorf("%q has %d entries", c, got)
	}

	// The previous version writes no creations.
	if got, want := Completions("a1b2=100 c3d4=110").Of("a1b2"), (Success{at(100), at(100)}); got != want {
		t.Errorf("a success of the previous version is %v, want %v", got, want)
	}
}
