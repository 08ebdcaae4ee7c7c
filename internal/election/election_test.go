// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// server is an API server with one Lease.
type server struct {
	mu      sync.Mutex
	version int
	record  resourcelock.LeaderElectionRecord
	writes  int
	watches []*watch.RaceFreeFakeWatcher
	// leaders are the replicas that are working, and terms all terms in order.
	leaders []string
	terms   []term
}

type term struct {
	identity string
	first    bool
	tookOver bool
	at       time.Time
}

// connection is a replica's connection to the server.
type connection struct {
	*server
	identity string
	seen     int
	// late is a write of the replica that takes effect just before its next one.
	late bool
	// slow is the time after which a write is answered that takes effect at once.
	slow time.Duration
	// answered is true if a slow write is answered although it was cancelled.
	answered bool
	// unwatched is true if the replica may not watch the Lease.
	unwatched bool
	// broken returns the error of all requests; it is nil while requests are answered.
	broken func(context.Context) error
}

func refused(context.Context) error { return errors.New("connection refused") }

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c *connection) Identity() string   { return c.identity }
func (c *connection) Describe() string   { return "lease" }
func (c *connection) RecordEvent(string) {}

func (c *connection) set(broken func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = broken
}

func (c *connection) delay(slow time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow = slow
}

func (c *connection) request(ctx context.Context, answer func() error) error {
	c.mu.Lock()
	broken := c.broken
	c.mu.Unlock()
	if broken != nil {
		return broken(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return answer()
}

func (c *connection) Get(ctx context.Context) (record *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = c.request(ctx, func() error {
		if c.version == 0 {
			return apierrors.NewNotFound(leases, "lease")
		}
		c.seen = c.version
		copied := c.record
		record, raw = &copied, []byte(fmt.Sprint(c.version))
		return nil
	})
	return record, raw, err
}

func (c *connection) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return c.request(ctx, func() error {
		if c.version != 0 {
			return apierrors.NewAlreadyExists(leases, "lease")
		}
		c.write(r)
		return nil
	})
}

func (c *connection) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	slow := time.Duration(0)
	err := c.request(ctx, func() error {
		slow = c.slow
		if c.late && r.HolderIdentity == "" {
			c.late = false
			c.version++
		}
		if c.seen != c.version {
			return apierrors.NewConflict(leases, "lease", errors.New("it has changed"))
		}
		c.write(r)
		return nil
	})
	if err != nil || slow == 0 {
		return err
	}
	if c.answered {
		<-time.After(slow)
		return nil
	}
	select {
	case <-time.After(slow):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *connection) write(r resourcelock.LeaderElectionRecord) {
	c.version++
	c.writes++
	c.seen, c.record = c.version, r
	for _, w := range c.watches {
		w.Modify(c.lease())
	}
}

func (s *server) lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new(s.record.HolderIdentity)}}
}

// watch starts a watch as the API server does without a resourceVersion: the Lease comes
// first.
func (c *connection) watch(ctx context.Context) (w watch.Interface, err error) {
	err = c.request(ctx, func() error {
		if c.unwatched {
			return apierrors.NewForbidden(leases, "lease", errors.New("no rule allows it"))
		}
		fake := watch.NewRaceFreeFake()
		if c.version > 0 {
			fake.Add(c.lease())
		}
		c.watches, w = append(c.watches, fake), fake
		return nil
	})
	return w, err
}

// holder returns the holder of the Lease.
func (s *server) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.HolderIdentity
}

// count returns the numbers of writes and of terms.
func (s *server) count() (writes, terms int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes, len(s.terms)
}

// working returns the replicas that are working.
func (s *server) working() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leaders)
}

// last is the term that began last.
func (s *server) last() term {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms[len(s.terms)-1]
}

// replica repeatedly participates in the election until it is stopped.
type replica struct {
	*connection
	lock *lock
	// ending is the time that the work takes to end.
	ending time.Duration
	// losses counts calls of Options.OnLoss.
	losses atomic.Int32
	cancel context.CancelFunc
	ended  chan struct{}
}

func (s *server) start(t *testing.T, identity string, change ...func(*connection)) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{connection: &connection{server: s, identity: identity}, cancel: cancel, ended: make(chan struct{})}
	for _, f := range change {
		f(r.connection)
	}
	e, err := newElection(r.connection, r.watch, Options{Log: logr.Discard(), OnLoss: func() { r.losses.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	r.lock = e.lock
	go func() {
		defer close(r.ended)
		for ctx.Err() == nil {
			if err := e.Lead(ctx, r.work); err != nil {
				t.Errorf("leading: %v", err)
			}
		}
	}()
	return r
}

func (r *replica) work(ctx context.Context, first bool) error {
	r.mu.Lock()
	r.leaders = append(r.leaders, r.identity)
	r.terms = append(r.terms, term{r.identity, first, r.lock.tookOver, time.Now()})
	r.mu.Unlock()
	<-ctx.Done()
	<-time.After(r.ending)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaders = slices.DeleteFunc(r.leaders, func(l string) bool { return l == r.identity })
	return nil
}

func (r *replica) stop() {
	r.cancel()
	<-r.ended
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// two runs a test with two replicas, the first of which leads.
func two(t *testing.T, test func(t *testing.T, s *server, a, b *replica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		a := s.start(t, "a")
		pass(time.Millisecond)
		b := s.start(t, "b")
		defer b.stop()
		defer a.stop()
		pass(10 * time.Second)
		if got := s.working(); !slices.Equal(got, []string{"a"}) || !s.last().first || s.last().tookOver {
			t.Fatalf("%v are working, and the last term is %+v; want a to lead from the beginning", got, s.last())
		}
		test(t, s, a, b)
	})
}

func TestRenewals(t *testing.T) {
	two(t, func(t *testing.T, s *server, _, _ *replica) {
		before, _ := s.count()
		pass(time.Minute)
		after, _ := s.count()
		if n := after - before; n < 60 || n > 120 {
			t.Errorf("%d renewals in a minute, want one or two per second", n)
		}
	})
}

// A candidate that watches the Lease leads when it is released. Another one looks often.
func TestHandover(t *testing.T) {
	for name, unwatched := range map[string]bool{"watched": false, "unwatched": true} {
		t.Run(name, func(t *testing.T) {
			within := time.Duration(0)
			if unwatched {
				jitter := leaderelection.JitterFactor
				within = time.Duration((1 + jitter) * float64(DefaultDuration/10))
			}
			two(t, func(t *testing.T, s *server, a, b *replica) {
				if unwatched {
					b.stop()
					b = s.start(t, "b", func(c *connection) { c.unwatched = true })
					defer b.stop()
					pass(10 * time.Second)
				}
				began := time.Now()
				a.stop()
				pass(time.Second)
				if last := s.last(); last.identity != "b" || last.first || last.tookOver || last.at.Sub(began) > within {
					t.Errorf("the last term is %+v, %s after a stopped; want b's within %s, and that the Lease was released", last, last.at.Sub(began), within)
				}
			})
		})
	}
}

// Watches that end are started again, and a Lease that is released meanwhile is found.
func TestWatchEnds(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, _ *replica) {
		s.mu.Lock()
		for _, w := range s.watches {
			w.Stop()
		}
		s.mu.Unlock()
		pass(10 * time.Second)
		began := time.Now()
		a.stop()
		pass(time.Second)
		if last := s.last(); last.identity != "b" || last.at != began {
			t.Errorf("the last term is %+v, %s after a stopped; want b's at once", last, last.at.Sub(began))
		}
	})
}

// The last renewal takes effect although its request was cancelled.
func TestHandoverDuringRenewal(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, _ *replica) {
		s.mu.Lock()
		a.late = true
		s.mu.Unlock()
		a.stop()
		pass(500 * time.Millisecond)
		if last := s.last(); last.identity != "b" || last.tookOver {
			t.Errorf("the last term is %+v; want b to lead after the Lease was released", last)
		}
	})
}

// The Lease is released when the work has ended, and not before.
func TestHandoverAfterWork(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, _ *replica) {
		a.ending = 10 * time.Second
		a.cancel()
		pass(9 * time.Second)
		if got := s.working(); !slices.Equal(got, []string{"a"}) || s.holder() != "a" {
			t.Errorf("%v are working, and %s holds the Lease, want a", got, s.holder())
		}
		pass(1500 * time.Millisecond)
		if got := s.working(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("%v are working after a has stopped, want b", got)
		}
	})
}

func TestTakeover(t *testing.T) {
	for name, broken := range map[string]func(context.Context) error{"refused": refused, "hangs": hangs} {
		t.Run(name, func(t *testing.T) {
			two(t, func(t *testing.T, s *server, a, _ *replica) {
				a.set(broken)
				began := time.Now()
				for s.last().identity == "a" && time.Since(began) < time.Minute {
					pass(10 * time.Millisecond)
					if working := s.working(); len(working) > 1 {
						t.Errorf("%v are working at the same time", working)
					}
				}
				last := s.last()
				if took := last.at.Sub(began); last.identity != "b" || last.first || !last.tookOver || took > 3*time.Second {
					t.Errorf("the last term is %+v, after %s; want b to take over within 3s", last, took)
				}
				a.set(nil)
				pass(time.Minute)
				if got := s.working(); !slices.Equal(got, []string{"b"}) || s.holder() != "b" {
					t.Errorf("%v are working when a can reach the server again, and %s holds the Lease, want b", got, s.holder())
				}
			})
		})
	}
}

// A late event about the released Lease does not end the candidacy of a replica that is just
// acquiring it.
func TestReleasedWhileAcquiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: 1}
		a := s.start(t, "a", func(c *connection) { c.slow, c.answered = 100*time.Millisecond, true })
		pass(50 * time.Millisecond)
		s.mu.Lock()
		for _, w := range s.watches {
			w.Modify(&coordinationv1.Lease{})
		}
		s.mu.Unlock()
		pass(5 * time.Second)
		if _, terms := s.count(); terms != 1 {
			t.Errorf("%d terms, want 1", terms)
		}
		a.cancel()
		<-a.ended
	})
}

// Deleting the Lease does not make a candidate that has read it the first leader.
func TestLeaseIsDeleted(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, _ *replica) {
		a.set(hangs)
		s.mu.Lock()
		s.version, s.record = 0, resourcelock.LeaderElectionRecord{}
		for _, w := range s.watches {
			w.Delete(&coordinationv1.Lease{})
		}
		s.mu.Unlock()
		pass(time.Second)
		if last := s.last(); last.identity != "b" || last.first {
			t.Errorf("the last term is %+v, want b's, and not as the first leader", last)
		}
	})
}

// The Lease counts from the beginning of the last renewal, not from its answer. A leader therefore
// stops in time if that renewal was slow.
func TestTakeoverAfterASlowRenewal(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, _ *replica) {
		const slow = 1100 * time.Millisecond
		a.delay(slow)
		renewals, _ := s.count()
		for n := renewals; n == renewals; n, _ = s.count() {
			pass(time.Millisecond)
		}
		renewed := time.Now()
		pass(slow - time.Millisecond)
		a.set(hangs)
		for s.last().identity == "a" && time.Since(renewed) < time.Minute {
			pass(10 * time.Millisecond)
			if working := s.working(); len(working) > 1 {
				t.Fatalf("%v are working at the same time, %s after the last renewal", working, time.Since(renewed))
			}
		}
		if last := s.last(); last.identity != "b" || last.at.Sub(renewed) > 3*time.Second {
			t.Errorf("the last term is %+v, want b to take over within 3s of the last renewal, at %s", last, renewed)
		}
	})
}

// Renewals that always take less than four tenths of the Lease's duration do not end the term.
func TestSlowRenewals(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, _ *replica) {
		a.delay(750 * time.Millisecond)
		pass(time.Minute)
		if _, n := s.count(); n != 1 {
			t.Errorf("%d terms, want one", n)
		}
	})
}

// A short outage does not end the term, whichever requests fail.
func TestHiccup(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, b *replica) {
		for range 20 {
			a.set(refused)
			b.set(refused)
			pass(time.Second)
			a.set(nil)
			b.set(nil)
			pass(time.Second)
		}
		if _, n := s.count(); n != 1 {
			t.Errorf("%d terms, want one", n)
		}
	})
}

// After a long outage, one of the replicas leads without a restart.
func TestOutage(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, b *replica) {
		a.set(hangs)
		b.set(hangs)
		pass(time.Minute)
		if got := s.working(); len(got) != 0 {
			t.Errorf("%v are working without a Lease", got)
		}
		a.set(nil)
		b.set(nil)
		pass(3 * time.Second)
		if got := s.working(); len(got) != 1 {
			t.Errorf("%v are working, want one", got)
		}
	})
}

// A container that crashed leads again without waiting for its own Lease to expire.
func TestRestart(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, b *replica) {
		b.stop()
		a.set(refused)
		pass(5 * time.Second)
		again := s.start(t, "a")
		defer again.stop()
		pass(time.Millisecond)
		if last := s.last(); !slices.Equal(s.working(), []string{"a"}) || last.first || last.tookOver || time.Since(last.at) > time.Second {
			t.Errorf("the last term is %+v, want a new term of a", last)
		}
	})
}

// A replica does not release the Lease if another replica holds it.
func TestReleaseOfAnothers(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, _ *replica) {
		a.ending = 1800 * time.Millisecond // it ends about when b takes over
		a.set(refused)
		pass(1500 * time.Millisecond)
		a.set(nil)
		pass(time.Minute)
		if _, n := s.count(); n > 2 || s.holder() == "" {
			t.Errorf("%d terms, and %q holds the Lease", n, s.holder())
		}
	})
}

// A process that was paused stops leading when another replica holds the Lease.
func TestLeaseIsAnothers(t *testing.T) {
	two(t, func(t *testing.T, s *server, _, b *replica) {
		s.mu.Lock()
		b.write(resourcelock.LeaderElectionRecord{HolderIdentity: "c", LeaseDurationSeconds: 60})
		s.mu.Unlock()
		pass(time.Second)
		if got := s.working(); len(got) > 0 {
			t.Errorf("%v are working a second after c acquired the Lease", got)
		}
		pass(time.Minute)
		if s.holder() == "" {
			t.Error("a released the Lease of c")
		}
	})
}

// Each loss of the Lease is reported once. A leader that is stopped releases the Lease, and does not
// lose it, so rolling updates cause no losses.
func TestLosses(t *testing.T) {
	two(t, func(t *testing.T, s *server, a, b *replica) {
		for n := range int32(3) {
			a.set(refused)
			pass(5 * time.Second)
			a.set(nil)
			if got := s.working(); !slices.Equal(got, []string{"b"}) || a.losses.Load() != n+1 {
				t.Fatalf("%v are working, and %d losses of a are reported, want b to work, and %d losses", got, a.losses.Load(), n+1)
			}
			b.stop()
			pass(time.Second)
			if got := s.working(); !slices.Equal(got, []string{"a"}) || b.losses.Load() != 0 {
				t.Fatalf("%v are working, and %d losses of b are reported after it was stopped, want a to work, and none", got, b.losses.Load())
			}
			b = s.start(t, "b")
			defer b.stop()
			pass(10 * time.Second)
		}
	})
}

// Work that ends with an error releases the Lease.
func TestWorkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		c := &connection{server: s, identity: "a"}
		e, err := newElection(c, c.watch, Options{Log: logr.Discard(), OnLoss: func() { t.Error("the Lease was lost") }})
		if err != nil {
			t.Fatal(err)
		}
		stuck := errors.New("stuck")
		if got := e.Lead(t.Context(), func(context.Context, bool) error { return stuck }); !errors.Is(got, stuck) || s.holder() != "" {
			t.Errorf("Lead = %v, and %q holds the Lease; want %v, and no holder", got, s.holder(), stuck)
		}
	})
}

// Two replicas never work at the same time if their work ends with its context, regardless
// of failures and restarts. One replica leads when there are no failures.
func TestOneLeader(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			s := &server{}
			all := []*replica{s.start(t, "a"), s.start(t, "b"), s.start(t, "c")}
			for range 200 {
				i := rng.IntN(len(all))
				switch rng.IntN(7) {
				case 0:
					all[i].stop()
					all[i] = s.start(t, all[i].identity)
				case 1:
					all[i].set(refused)
				case 2:
					all[i].set(hangs)
				case 3:
					all[i].delay(time.Duration(rng.IntN(1500)) * time.Millisecond)
				default:
					all[i].set(nil)
					all[i].delay(0)
				}
				for range rng.IntN(40) {
					pass(50 * time.Millisecond)
					if working := s.working(); len(working) > 1 {
						t.Errorf("seed %d: %v are working at the same time", seed, working)
					}
				}
			}
			for _, r := range all {
				r.set(nil)
				r.delay(0)
			}
			pass(5 * time.Second)
			if len(s.working()) != 1 {
				t.Errorf("seed %d: %v are working without failures, want one", seed, s.working())
			}
			for _, r := range all {
				r.stop()
			}
		})
	}
}

func TestDurations(t *testing.T) {
	for d, ok := range map[time.Duration]bool{
		time.Second: false, 2 * time.Second: true, 2500 * time.Millisecond: false, 15 * time.Second: true, -time.Second: false,
	} {
		if err := ValidateDuration(d); (err == nil) != ok {
			t.Errorf("%s: %v", d, err)
		}
	}
}
