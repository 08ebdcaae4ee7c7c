// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
)

// run returns how far a pod that runs once has come.
func run(o *corev1.Pod) gate.Run {
	r := gate.Run{Succeeded: o.Status.Phase == corev1.PodSucceeded, Boot: o.Labels[v1alpha1.BootLabel]}
	for i := range o.Status.ContainerStatuses {
		var started, ended time.Time
		switch state := &o.Status.ContainerStatuses[i].State; {
		case state.Terminated != nil:
			started, ended = clients.Instant(state.Terminated.StartedAt), clients.Instant(state.Terminated.FinishedAt)
		case state.Running != nil:
			started = clients.Instant(state.Running.StartedAt)
		}
		r.Started, r.Ended = gate.Earliest(r.Started, started), gate.Latest(r.Ended, ended)
	}
	return r
}
