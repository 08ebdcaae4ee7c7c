// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// The first status of a new leader is complete, and does not wait until budget may be granted.
func TestStatusAfterATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate"))
		w.add(3, func(_ int, n *gate.Node) { isOpen(n, "gate") })
		w.tookOver = true
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(statusInterval / 2)
		select {
		case <-w.c.counted:
		default:
			t.Error("the fleet is not counted before budget may be granted")
		}
	})
}
