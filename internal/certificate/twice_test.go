// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Two runs at once cause no interruption, whether both of them renew the certificate or one of them
// finds that it is valid. If both write the Secret, one of them gets an error.
func TestTwoRunsAtOnceLeaveNoGap(t *testing.T) {
	for _, renew := range []bool{true, false} {
		for _, later := range []time.Duration{time.Millisecond, settle - time.Millisecond, settle + time.Millisecond} {
			t.Run(fmt.Sprintf("the second one after %s, renews: %t", later, renew), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newServer(t, configuration())
					if err := w.ensure(false); err != nil {
						t.Fatal(err)
					}
					pass(365 * day)
					var first, second error
					var runs sync.WaitGroup
					runs.Go(func() { first = w.ensure(true) })
					synctest.Wait()
					pass(later)
					runs.Go(func() {
						second = Ensure(w.Context(), Options{Client: w.api, Namespace: namespace, Renew: renew, Settle: settle, Out: io.Discard, Progress: io.Discard})
					})
					runs.Wait()
					w.check()
					if s := w.state(); first != nil && second != nil || s.serving.NotBefore.Before(time.Now().Add(-day)) {
						t.Errorf("errors %v and %v; the certificate is from %s", first, second, s.serving.NotBefore)
					}
					pass(remount + settle)
					if err := w.ensure(false); err != nil {
						t.Error(err)
					}
					w.check()
				})
			})
		}
	}
}
