// SPDX-License-Identifier: Apache-2.0

package read

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// The time is that of the API server within a second, and that of this machine if the responses
// do not contradict it.
func TestClock(t *testing.T) {
	const none = time.Duration(1)
	for name, c := range map[string]struct {
		// ahead is by how much the API server's clock is ahead, for each response, or none if
		// there is no time in it. takes is how long each takes.
		ahead []time.Duration
		takes time.Duration
		want  time.Duration
	}{
		"no response":                        {},
		"a response without a time":          {[]time.Duration{none}, 0, 0},
		"the clocks agree":                   {[]time.Duration{0, 0}, 0, 0},
		"the clocks almost agree":            {[]time.Duration{300 * time.Millisecond, -300 * time.Millisecond}, 0, 0},
		"this machine is behind":             {[]time.Duration{time.Hour, none}, 0, time.Hour},
		"this machine is ahead":              {[]time.Duration{-time.Hour}, 0, -time.Hour},
		"a slow response":                    {[]time.Duration{5 * time.Second}, 10 * time.Second, 0},
		"a slow response, far ahead":         {[]time.Duration{time.Hour}, 10 * time.Second, time.Hour - 10*time.Second},
		"the clock of this machine was set":  {[]time.Duration{time.Hour, 0}, 0, 0},
		"the clock of this machine runs off": {[]time.Duration{0, -time.Hour}, 0, -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var server clock
				for _, ahead := range c.ahead {
					transport := server.observe(roundTripper(func(*http.Request) (*http.Response, error) {
						response := &http.Response{Header: http.Header{}}
						if ahead != none {
							response.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
						}
						<-time.After(c.takes)
						return response, nil
					}))
					if _, err := transport.RoundTrip(nil); err != nil { //nolint:bodyclose // there is none
						t.Fatal(err)
					}
				}
				if got := time.Until(server.now()); (got - c.want).Abs() > time.Second {
					t.Errorf("the time is ahead by %s, want %s", got, c.want)
				}
			})
		})
	}
}

// An error of a request has no time.
func TestClockOfAFailedRequest(t *testing.T) {
	var server clock
	failure := errors.New("unreachable")
	_, err := server.observe(roundTripper(func(*http.Request) (*http.Response, error) { return nil, failure })).RoundTrip(nil) //nolint:bodyclose // there is none
	if !errors.Is(err, failure) || time.Since(server.now()).Abs() > time.Second {
		t.Errorf("error %v, and the time is %s", err, server.now())
	}
}
