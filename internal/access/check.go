// SPDX-License-Identifier: Apache-2.0

package access

import (
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// Check returns a check of a health probe. controller-runtime reports to the kubelet only that the check
// fails, so the log has the cause. It is logged when it changes, and not with each probe.
func Check(log logr.Logger, name string, f func() error) healthz.Checker {
	var mu sync.Mutex
	last := ""
	return func(*http.Request) error {
		err, cause := f(), ""
		if err != nil {
			cause = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case cause == last:
		case err != nil:
			log.Info("health check fails", "check", name, "cause", cause)
		default:
			log.Info("health check succeeds again", "check", name)
		}
		last = cause
		return err
	}
}
