// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

// Bounds of what clients can have the webhook hold in memory, all together. An API
// server asks for one Node at a time for each that registers, in some ten
// kilobytes.
const (
	// maxRequest bounds a request. The API server takes no object of more bytes.
	maxRequest = 3 << 20
	// maxBytes bounds the requests that are being read and answered, and maxLarge those
	// among them that are large, so that these keep no others out.
	maxBytes, maxLarge = 24 << 20, 12 << 20
	// large is what no real Node is.
	large = 256 << 10
	// leastRequest is what a request counts for at least.
	leastRequest = 16 << 10
	// maxDecoding bounds how many requests are decoded at a time.
	maxDecoding = 4
	// patience is how long a request waits for others. The API server waits for five
	// seconds, and leaves the Node open then.
	patience = 3 * time.Second
)

// errBusy is the answer to a request that has waited for too long.
var errBusy = errors.New("the webhook has too many requests in hand")

// limits are the bounds in force.
type limits struct{ bytes, large, decoding *semaphore.Weighted }

func newLimits() *limits {
	return &limits{semaphore.NewWeighted(maxBytes), semaphore.NewWeighted(maxLarge), semaphore.NewWeighted(maxDecoding)}
}

// admit waits until a request of so many bytes may be read. It returns what is to be
// called when it has been answered; or the HTTP status that says why it may not.
func (l *limits) admit(ctx context.Context, length int64) (done func(), status int, err error) {
	switch {
	case length < 0:
		return nil, http.StatusLengthRequired, errors.New("the request does not say how long it is")
	case length > maxRequest:
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the request has more than %d bytes", maxRequest)
	}
	weight := max(length, leastRequest)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if weight > large {
		if err := l.large.Acquire(ctx, weight); err != nil {
			return nil, http.StatusServiceUnavailable, errBusy
		}
	}
	if err := l.bytes.Acquire(ctx, weight); err != nil {
		if weight > large {
			l.large.Release(weight)
		}
		return nil, http.StatusServiceUnavailable, errBusy
	}
	return func() {
		l.bytes.Release(weight)
		if weight > large {
			l.large.Release(weight)
		}
	}, 0, nil
}
