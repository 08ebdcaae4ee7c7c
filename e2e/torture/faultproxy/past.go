// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// past records the resource versions of the API server over time.
type past struct {
	mu     sync.Mutex
	stamps []stamp
}

type stamp struct {
	at      time.Time
	version uint64
}

// grain is the resolution of the recorded times.
const grain = 50 * time.Millisecond

// reached records that a resource version has been reached.
func (p *past) reached(version string, now time.Time) {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.stamps); n > 0 && (v <= p.stamps[n-1].version || now.Sub(p.stamps[n-1].at) < grain) {
		return
	}
	p.stamps = append(p.stamps, stamp{now, v})
}

// at returns the latest resource version that is known to have been reached by a
// time, or "".
func (p *past) at(t time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.stamps) - 1; i >= 0; i-- {
		if !p.stamps[i].at.After(t) {
			return strconv.FormatUint(p.stamps[i].version, 10)
		}
	}
	return ""
}

// rewind changes a list request to an earlier resource version. It reports whether the
// request is forwarded.
func (e *exchange) rewind(p *Proxy, w http.ResponseWriter, r *http.Request) bool {
	if e.streaming {
		writeStatus(w, Invalid, statuses[Invalid])
		return false
	}
	version := p.past.at(time.Now().Add(-e.fault.Wait))
	query := r.URL.Query()
	if e.Verb != "list" || version == "" || query.Get("continue") != "" {
		return true
	}
	p.add(Rewind)
	query.Set("resourceVersion", version)
	query.Set("resourceVersionMatch", "Exact")
	r.URL.RawQuery = query.Encode()
	return true
}
