// SPDX-License-Identifier: Apache-2.0

package read

import (
	"net/http"
	"sync"
	"time"
)

// clock is the clock of the API server, as far as its responses show it. The clock of a user's
// machine may be wrong by any time, and is corrected only if a response proves that: the header
// Date has whole seconds.
type clock struct {
	mu sync.Mutex
	// known is true if a response had a time. The API server's clock is then ahead of this
	// machine's by at least least and at most most, which may be negative.
	known       bool
	least, most time.Duration
}

// now returns the time of the API server.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(max(c.least, min(c.most, 0)))
}

// observe returns a transport that notes the times of responses.
func (c *clock) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		sent := time.Now()
		response, err := next.RoundTrip(request)
		if err == nil {
			if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
				c.note(date, sent, time.Now())
			}
		}
		return response, err
	})
}

// note notes the time of a response, which is rounded down, to a request that was sent and answered
// at times of this machine. A response that contradicts earlier ones replaces them: a clock was set.
func (c *clock) note(date, sent, answered time.Time) {
	least, most := date.Sub(answered), date.Add(time.Second).Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && least <= c.most && most >= c.least {
		least, most = max(least, c.least), min(most, c.most)
	}
	c.known, c.least, c.most = true, least, most
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
