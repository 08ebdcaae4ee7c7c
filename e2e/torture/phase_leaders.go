// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/torture/faultproxy"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/simnode"
)

// paused counts the times that a process was stopped by SIGSTOP.
const paused faultproxy.Fault = "SIGSTOP and SIGCONT"

// longestPause is the maximum time for which a process is stopped.
const longestPause = 5 * time.Second

// failover is the maximum time without a leader.
const failover = 5 * time.Second

// twoLeaders runs two replicas that both act as leader, and pauses one of them at a time.
func twoLeaders(ctx context.Context, s *site, d time.Duration) error {
	var both []*replica
	for range 2 {
		r, err := s.start(ctx, "--leader-elect=false")
		if err != nil {
			return err
		}
		both = append(both, r)
	}
	if err := s.fleet.arrive(ctx); err != nil {
		return err
	}
	rng := s.rng("leaders")
	return s.during(ctx, d, func(ctx context.Context) error {
		for ctx.Err() == nil {
			r := both[rng.IntN(2)]
			s.report.inject(paused)
			r.signal(syscall.SIGSTOP)
			err := await.Pause(ctx, time.Duration(rng.Int64N(int64(longestPause))))
			r.signal(syscall.SIGCONT)
			if err != nil {
				return err
			}
			if err := await.Pause(ctx, time.Duration(rng.Int64N(int64(2*time.Second)))); err != nil {
				return err
			}
		}
		return nil
	})
}

// ending is how a leader ends.
type ending string

const (
	// lost means that the machine loses power: the process is killed and does not return.
	lost ending = "leader killed with its machine"
	// crashed means that the process is killed and restarted immediately.
	crashed ending = "leader killed and restarted"
	// asked means that the process gets SIGTERM and does not return.
	asked ending = "leader stopped by SIGTERM"
)

// failovers ends the leader of two replicas repeatedly, and measures the time until the
// other one writes.
func failovers(ctx context.Context, s *site, d time.Duration) error {
	if err := s.startPair(ctx); err != nil {
		return err
	}
	return s.endLeaders(ctx, d)
}

// endLeaders ends the leader in each way in turn, in each of them at least once. When the time has
// elapsed, the last one must still be replaced.
func (s *site) endLeaders(ctx context.Context, d time.Duration) (err error) {
	for _, r := range s.replicas {
		r.recordWrites()
	}
	took := make(map[ending][]time.Duration)
	endings := []ending{lost, asked, crashed}
	churned := s.during(ctx, d, func(timed context.Context) error {
		for i := 0; i < len(endings) || timed.Err() == nil; i++ {
			how := endings[i%len(endings)]
			one, failed := s.endLeader(ctx, how)
			if failed != nil {
				err = fmt.Errorf("%s: %w", how, failed)
				return err
			}
			took[how] = append(took[how], one)
			if err = await.Pause(ctx, time.Second); err != nil {
				return err
			}
		}
		return nil
	})
	for how, all := range took {
		slices.Sort(all)
		s.report.note("%d times %s: next patch of a Node after %s (median), %s (longest)", len(all), how,
			all[len(all)/2].Round(10*time.Millisecond), all[len(all)-1].Round(10*time.Millisecond))
	}
	if err != nil { // during does not return it if the time has elapsed
		return err
	}
	return churned
}

// endLeader ends the leader's process, and returns the time until a Node was written
// again. A leader that was asked to end continues to write for a while: for it, that is the
// time from its last write.
func (s *site) endLeader(ctx context.Context, how ending) (took time.Duration, err error) {
	leader, err := s.awaitLeader(ctx, func(*replica) bool { return true })
	if err != nil {
		return 0, err
	}
	s.report.inject(faultproxy.Fault(how))
	if how != crashed {
		leader.away.Lock()
		defer leader.away.Unlock()
	}
	stop := s.keepBusy(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if how == asked {
		leader.signal(syscall.SIGTERM)
	} else {
		leader.kill()
	}
	ended := time.Now()
	again, err := s.awaitWrite(ctx, ended, func(r *replica) bool { return r != leader || how == crashed })
	if last, ok := leader.writes.lastBefore(again); ok && how == asked && last.After(ended) {
		ended = last
	}
	return again.Sub(ended), err
}

// awaitWrite returns when one of the replicas first wrote a Node after a time.
func (s *site) awaitWrite(ctx context.Context, after time.Time, by func(*replica) bool) (first time.Time, err error) {
	err = await.Until(ctx, "a Node to be written by the next leader", func(context.Context) error {
		for _, r := range s.replicas {
			if at, ok := r.writes.firstAfter(after); ok && by(r) && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
		if first.IsZero() {
			return errors.New("no Node has been written since")
		}
		return nil
	})
	return first, err
}

// arrivalEvery is the time between the Nodes of keepBusy. It limits how precisely a
// failover can be measured.
const arrivalEvery = 25 * time.Millisecond

// keepBusy creates Nodes with a gate that can be opened at once, so that a leader always
// has something to write. Churn alone can leave it without work for some tenths of a
// second. The returned function deletes them.
func (s *site) keepBusy(ctx context.Context) (stop func() error) {
	creating, cancel := context.WithCancel(ctx)
	ctx = context.WithoutCancel(ctx) // a Node whose creation has begun has to be deleted
	created := make(chan error, 1)
	var names []string
	s.arrivals++
	prefix := fmt.Sprintf("arrival-%d-", s.arrivals)
	go func() {
		for await.Pause(creating, arrivalEvery) == nil {
			name := fmt.Sprint(prefix, len(names))
			names = append(names, name)
			n := simnode.New(s.kube, name, "boot-of-"+name)
			if _, err := n.Register(ctx, simnode.Conditions{corev1.NodeReady: yes, net: yes}); err != nil {
				created <- fmt.Errorf("creating Node %s: %w", name, err)
				return
			}
		}
		created <- nil
	}()
	return func() error {
		cancel()
		err := <-created
		for _, name := range names {
			err = errors.Join(err, client.IgnoreNotFound(s.kube.CoreV1().Nodes().Delete(ctx, name, deleteNow)))
		}
		return err
	}
}

// leader returns the replica that holds the Lease.
func (s *site) leader(ctx context.Context) (*replica, error) {
	lease, err := s.kube.CoordinationV1().Leases(s.installation.ServiceAccount.Namespace).Get(ctx, v1alpha1.LeaseName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	i := slices.IndexFunc(s.replicas, func(r *replica) bool { return r.identity == holder })
	if i < 0 {
		return nil, fmt.Errorf("the Lease is held by %q", holder)
	}
	return s.replicas[i], nil
}
