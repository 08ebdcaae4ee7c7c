// SPDX-License-Identifier: Apache-2.0

package await_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodegate/nodegate/testcluster/await"
)

var errNotYet = errors.New("not yet")

func TestUntil(t *testing.T) {
	const steps = 10
	for name, test := range map[string]struct {
		check func(call int, since time.Duration) error
		want  string // part of the error; empty: none
		took  time.Duration
	}{
		"holds at once": {
			check: func(int, time.Duration) error { return nil },
		},
		"silence ends it": {
			check: func(int, time.Duration) error { return errNotYet },
			want:  "waiting for it: nothing has changed for 2m0s; last error: not yet",
			took:  await.Silence,
		},
		"slow progress does not": {
			check: func(_ int, since time.Duration) error {
				if step := since / (await.Silence - time.Second); step < steps {
					return fmt.Errorf("step %d", step)
				}
				return nil
			},
			took: steps * (await.Silence - time.Second),
		},
		"answers that come back are no progress": {
			check: func(call int, _ time.Duration) error { return fmt.Errorf("answer %d", call%3) },
			want:  "nothing has changed",
			took:  await.Silence,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, call := time.Now(), 0
				err := await.Until(t.Context(), "it", func(context.Context) error {
					call++
					return test.check(call, time.Since(begin))
				})
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("error is %v, want %q", err, test.want)
				}
				if took := time.Since(begin); took < test.took || took > test.took+time.Second {
					t.Errorf("took %s, want %s", took, test.took)
				}
			})
		})
	}
}

func TestUntilContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the cluster is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		err := await.Until(ctx, "it", func(ctx context.Context) error {
			if ctx.Err() == nil {
				time.AfterFunc(time.Second, func() { cancel(cause) })
				return errNotYet
			}
			return ctx.Err()
		})
		if !errors.Is(err, cause) || !errors.Is(err, errNotYet) {
			t.Errorf("error is %v, want the cause and the last error before it", err)
		}
	})
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, progress, stop := await.Watch(t.Context(), time.Minute)
		defer stop()
		for range 10 {
			<-time.After(59 * time.Second)
			progress()
		}
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatalf("ended in spite of progress: %v", context.Cause(ctx))
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if cause := context.Cause(ctx); cause == nil || !strings.Contains(cause.Error(), "1m0s") {
			t.Errorf("cause is %v, want one that names the silence", cause)
		}
		progress() // too late
		if ctx.Err() == nil {
			t.Error("progress revived what had ended")
		}
	})
}
