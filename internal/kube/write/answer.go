// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"
	"fmt"
	"net/http"
)

// An API server that is overloaded asks to repeat a request later (Retry-After). client-go does so,
// and if there is not enough time, its error shows only that. Such answers are therefore noted.

// lastAnswer is the status of the answer to the latest attempt of a request, if that was to be
// repeated, and "" otherwise.
type lastAnswer struct{ status string }

type lastAnswerKey struct{}

// withLastAnswer returns a context for a request whose answer is noted.
func withLastAnswer(ctx context.Context) (context.Context, *lastAnswer) {
	last := new(lastAnswer)
	return context.WithValue(ctx, lastAnswerKey{}, last), last
}

// noting notes answers in the contexts of requests.
type noting struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. If there is no time for another attempt, the answer to the
// previous one remains.
func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	last, noted := r.Context().Value(lastAnswerKey{}).(*lastAnswer)
	noted = noted && r.Context().Err() == nil
	if noted {
		last.status = ""
	}
	response, err := n.next.RoundTrip(r)
	if noted && err == nil && isPostponement(response.StatusCode) {
		last.status = response.Status
	}
	return response, err
}

// isPostponement reports whether an API server that answers with this status may ask to repeat the
// request. A timeout is no answer.
func isPostponement(code int) bool {
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError && code != http.StatusGatewayTimeout
}

// postponedError is the error of a request that was answered, and could not be repeated in time.
type postponedError struct {
	status string
	err    error
}

// Error implements error.
func (e *postponedError) Error() string {
	return fmt.Sprintf("the API server answered %s, and the request could not be repeated in time: %v", e.status, e.err)
}

// Unwrap returns the error of the client.
func (e *postponedError) Unwrap() error { return e.err }

// explain adds the answer to an error of a request that is not one itself.
func (a *lastAnswer) explain(err error) error {
	if a.status == "" || isAnswer(err) {
		return err
	}
	return &postponedError{a.status, err}
}
