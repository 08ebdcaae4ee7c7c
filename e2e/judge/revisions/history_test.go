// SPDX-License-Identifier: Apache-2.0

package revisions

import (
	"testing"
	"time"
)

// begin is the time at which histories begin.
var begin = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// A request that changes nothing is answered with the revision of an earlier request.
func TestRequestWithoutChangeIsNotTheWrite(t *testing.T) {
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	h := New(1, 9, at(10), nil, []Write{
		{Revision: 5, User: "late", Received: at(0), Done: at(4)},
		{Revision: 5, User: "first", Received: at(1), Done: at(2)},
	})
	if w, _ := h.Write(5); w.User != "first" {
		t.Errorf("revision 5 is attributed to %q", w.User)
	}
}

// A revision that is not in the audit log was committed between its neighbors in the log.
func TestClockBounds(t *testing.T) {
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	h := New(1, 9, at(10), nil, []Write{
		{Revision: 3, Received: at(2), Done: at(9)},
		{Revision: 5, Received: at(1), Done: at(4)}, // revision 3 was also committed by then
		{Revision: 7, Received: at(6), Done: at(7)},
	})
	for revision, want := range map[int64][2]time.Time{
		1: {{}, at(4)}, 3: {at(2), at(4)}, 4: {at(2), at(4)}, 6: {at(2), at(7)}, 7: {at(6), at(7)}, 8: {at(6), at(10)},
	} {
		if got := [2]time.Time{h.Earliest(revision), h.Latest(revision)}; got != want {
			t.Errorf("revision %d was committed between %v, want %v", revision, got, want)
		}
	}
}
