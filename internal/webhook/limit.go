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

// Limits of the memory that all clients together can make the webhook use. An API server
// sends one request of about ten kilobytes for each Node that is being created.
const (
	// maxRequest limits the bytes of a request. etcd accepts Nodes of 1.5 MiB by default,
	// as Protobuf. In JSON, they are up to eight times as large: in a list of runtime
	// handlers, or six times if all characters are escaped. The other fields of a request
	// have less than 1 MiB.
	maxRequest = 8*(3<<19) + 1<<20
	// maxBytes limits the total size of the requests that are being read and answered,
	// and maxLarge that of the large requests, so that they cannot block all others.
	maxBytes, maxLarge = 28 << 20, 16 << 20
	// large is a size in bytes that no request for a real Node exceeds.
	large = 256 << 10
	// leastRequest is the minimum size for which a request counts.
	leastRequest = 16 << 10
	// maxDecoding limits the number of requests that are decoded concurrently.
	maxDecoding = 4
	// admitTimeout is the maximum time for which a request waits for others. The API
	// server creates the Node unchanged after five seconds.
	admitTimeout = 3 * time.Second
)

// errBusy is returned when a request has waited for admitTimeout.
var errBusy = errors.New("the webhook is processing too many requests")

// limits counts the requests against the limits.
type limits struct{ bytes, large, decoding *semaphore.Weighted }

func newLimits() *limits {
	return &limits{semaphore.NewWeighted(maxBytes), semaphore.NewWeighted(maxLarge), semaphore.NewWeighted(maxDecoding)}
}

// admit waits until a request of the given length may be read. The caller must call done
// when the request has been answered. If the request is not admitted, admit returns an
// HTTP status and an error.
func (l *limits) admit(ctx context.Context, length int64) (done func(), status int, err error) {
	switch {
	case length < 0:
		return nil, http.StatusLengthRequired, errors.New("the request has no Content-Length")
	case length > maxRequest:
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the request has more than %d bytes", maxRequest)
	}
	weight := max(length, leastRequest)
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
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
