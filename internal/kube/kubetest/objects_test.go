// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPassWaitsForWhatIsDueAtThatTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done atomic.Bool
		go func() {
			<-time.After(time.Second)
			for range 1000 {
				runtime.Gosched()
			}
			done.Store(true)
		}()
		Pass(time.Second)
		if !done.Load() {
			t.Error("the goroutine is still running")
		}
	})
}
