// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nodegate/nodegate/internal/kube/reflector"
	"github.com/nodegate/nodegate/internal/telemetry"
)

func TestWatchMetrics(t *testing.T) {
	w := telemetry.NewWatches()
	w.Status = func() []reflector.Status {
		return []reflector.Status{
			{Name: "nodes", Live: true},
			{Name: "pods in a (app=x)", Live: true},
			{Name: "pods in b (app=x)"},
			{Name: "pods in c (app=x)", Live: true},
		}
	}
	w.Silenced(reflector.Status{Name: "pods in b (app=x)"})
	want := `
# HELP nodegate_watch_silences_total Total number of times that a watch of the resource received nothing for so long, not even a bookmark, that it was listed again.
# TYPE nodegate_watch_silences_total counter
nodegate_watch_silences_total{resource="nodes"} 0
nodegate_watch_silences_total{resource="pods"} 1
# HELP nodegate_watch_up 1 if everything that this replica watches of the resource is synced and up to date, else 0.
# TYPE nodegate_watch_up gauge
nodegate_watch_up{resource="nodes"} 1
nodegate_watch_up{resource="pods"} 0
`
	if err := testutil.CollectAndCompare(w, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
