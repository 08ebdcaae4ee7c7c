// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
)

// kills sends SIGKILL to nodegate at every API call: before the call reaches the API
// server, or before the response reaches nodegate.
func kills(ctx context.Context, s *site, d time.Duration) error {
	// Without leader election, a new process does not wait for the lease of the killed one.
	r, err := s.startWithFleet(ctx, "--leader-elect=false")
	if err != nil {
		return err
	}
	k := &killer{replica: r, reached: make(map[string]*[2]int)}
	r.proxy.Follow(faultproxy.Plan{Request: k.fault})
	err = s.churning(ctx, d)
	r.proxy.Heal()
	s.report.note("SIGKILLs before and after calls: %s", k.summary())
	return err
}

// killer kills each process at its nth call, once before and once after the call. n
// increases by one every two processes.
type killer struct {
	replica *replica
	mu      sync.Mutex
	process int64
	calls   int
	reached map[string]*[2]int // before and after
}

func (k *killer) summary() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var calls []string
	for _, call := range slices.Sorted(maps.Keys(k.reached)) {
		calls = append(calls, fmt.Sprintf("%s %d+%d", call, k.reached[call][0], k.reached[call][1]))
	}
	return strings.Join(calls, ", ")
}

// deepest is the maximum n of killer, after which it starts again with 1.
const deepest = 80

func (k *killer) fault(r faultproxy.Request) faultproxy.RequestFault {
	k.mu.Lock()
	defer k.mu.Unlock()
	if process := k.replica.starts.Load(); process != k.process {
		k.process, k.calls = process, 0
	}
	k.calls++
	if k.calls != 1+int(k.process/2)%deepest {
		return faultproxy.RequestFault{}
	}
	call := r.Verb + " " + r.Resource
	if k.reached[call] == nil {
		k.reached[call] = new([2]int)
	}
	k.reached[call][k.process%2]++
	return faultproxy.RequestFault{Fault: faultproxy.Call, After: k.process%2 == 1, Do: k.replica.kill}
}
