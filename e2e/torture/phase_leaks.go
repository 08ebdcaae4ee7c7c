// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/nodegate/nodegate/testcluster/await"
)

// cycles is the number of cycles of churn and rest.
const cycles = 9

// usage is the resource usage of a process at rest.
type usage struct{ goroutines, heap float64 }

// leaks alternates between churn and rest, and compares nodegate's usage at rest in the
// last third with the second third. In the first third, caches fill.
func leaks(ctx context.Context, s *site, d time.Duration) error {
	r, err := s.startWithFleet(ctx, "--metrics-secure=false")
	if err != nil {
		return err
	}
	var all []usage
	for range cycles {
		if err := s.churning(ctx, d/cycles); err != nil {
			return err
		}
		if err := s.fleet.convergeFacts(ctx); err != nil {
			return err
		}
		u, err := r.usage(ctx)
		if err != nil {
			return err
		}
		all = append(all, u)
	}
	before, after := mean(all[cycles/3:2*cycles/3]), mean(all[2*cycles/3:])
	s.report.note("goroutines at rest: %.0f, later %.0f; heap after garbage collection: %.1f MB, later %.1f MB",
		before.goroutines, after.goroutines, before.heap/1e6, after.heap/1e6)
	if after.goroutines > before.goroutines*1.2 || after.heap > before.heap*1.3 {
		return fmt.Errorf("the usage of nodegate increases: %v", all)
	}
	return nil
}

// usage returns the process's usage according to its metrics. The heap is the minimum of
// several readings, to exclude garbage.
func (r *replica) usage(ctx context.Context) (usage, error) {
	var least usage
	for i := range 10 {
		families, err := r.metrics(ctx)
		if err != nil {
			return usage{}, err
		}
		u := usage{families["go_goroutines"], families["go_memstats_heap_alloc_bytes"]}
		if u.goroutines == 0 || u.heap == 0 {
			return usage{}, fmt.Errorf("reading metrics: there are %v goroutines, and the heap has %v bytes", u.goroutines, u.heap)
		}
		if i == 0 || u.heap < least.heap {
			least.heap = u.heap
		}
		least.goroutines = u.goroutines
		if err := await.Pause(ctx, 100*time.Millisecond); err != nil {
			return usage{}, err
		}
	}
	return least, nil
}

// metrics returns the process's gauges.
func (r *replica) metrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.current().Metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	gauges := make(map[string]float64)
	for name, family := range families {
		if m := family.GetMetric(); len(m) == 1 && m[0].GetGauge() != nil {
			gauges[name] = m[0].GetGauge().GetValue()
		}
	}
	return gauges, nil
}

func mean(of []usage) usage {
	var sum usage
	for _, u := range of {
		sum.goroutines, sum.heap = sum.goroutines+u.goroutines, sum.heap+u.heap
	}
	n := float64(len(of))
	return usage{sum.goroutines / n, sum.heap / n}
}
