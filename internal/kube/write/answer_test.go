// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/gate"
)

// answers is a connection to an API server that answers requests with these statuses, one after
// the other, and the last one repeatedly. It does not answer if the status is 0.
type answers struct {
	statuses []int
	// retryAfter is the number of seconds after which the client is to repeat its request.
	retryAfter int
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	code := a.statuses[0]
	if len(a.statuses) > 1 {
		a.statuses = a.statuses[1:]
	}
	if code == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	header := http.Header{"Retry-After": {strconv.Itoa(a.retryAfter)}}
	return &http.Response{StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code), Header: header, Body: body{r.Context(), code}, Request: r}, nil
}

// body is empty. Reading that of a success takes too long.
type body struct {
	ctx  context.Context
	code int
}

func (b body) Read([]byte) (int, error) {
	if b.code == http.StatusOK {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	return 0, io.EOF
}

func (b body) Close() error { return nil }

// An API server that asks to repeat a write later has answered, even if there is no time for that.
func TestAnswerWithoutTimeToRepeat(t *testing.T) {
	for name, c := range map[string]struct {
		answers    []int
		retryAfter int
		unanswered bool
	}{
		"rejected, long wait":                 {answers: []int{429}, retryAfter: 32},
		"rejected again and again":            {answers: []int{429}, retryAfter: 2},
		"unavailable, long wait":              {answers: []int{503}, retryAfter: 32},
		"a proxy's timeout, long wait":        {answers: []int{504}, retryAfter: 32, unanswered: true},
		"rejected, and then no answer":        {answers: []int{429, 0}, retryAfter: 1, unanswered: true},
		"rejected, and then half an answer":   {answers: []int{429, 200}, retryAfter: 1, unanswered: true},
		"no answer":                           {answers: []int{0}, unanswered: true},
		"rejected, then a timeout of a proxy": {answers: []int{429, 504}, retryAfter: 8, unanswered: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := NewWriter(&rest.Config{Transport: &answers{c.answers, c.retryAfter}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				_, err = w.Apply(ctx, &gate.Node{Name: "n", UID: "u"}, closing())
				if errors.Is(err, ErrUnanswered) != c.unanswered || !IsUncertain(err) {
					t.Errorf("error %v, want ErrUnanswered: %t", err, c.unanswered)
				}
				if status := strconv.Itoa(c.answers[0]); !c.unanswered && !strings.Contains(err.Error(), status) {
					t.Errorf("error %v does not contain the status %s", err, status)
				}
			})
		})
	}
}
