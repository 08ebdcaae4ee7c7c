// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-logr/logr/funcr"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A write of an Event that is aborted at the end of the process is not logged as a failure.
func TestEndIsNoFailureOfEvents(t *testing.T) {
	for what, c := range map[string]struct {
		ends bool
		want int
	}{"it fails": {false, 1}, "the process ends": {true, 0}} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
					if c.ends {
						cancel()
					}
					return errors.New("no answer")
				}})
			logged := 0
			log := funcr.New(func(string, string) { logged++ }, funcr.Options{})
			r := NewRecorder(api, clock.RealClock{}, log, NewMetrics(prometheus.NewRegistry()))
			for range 2 {
				r.write(ctx, &eventsv1.Event{})
			}
			if logged != c.want {
				t.Errorf("%d logged lines, want %d", logged, c.want)
			}
		})
	}
}
