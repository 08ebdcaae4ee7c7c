// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
)

// inPages returns an API that has many gates, and fails a list of more than 20: each of them
// can have 1.5 MiB.
func inPages(gates int) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Limit == 0 || o.Limit > 20 {
				return nil, fmt.Errorf("the limit is %d", o.Limit)
			}
			first, _ := strconv.Atoi(o.Continue)
			list := &gateclient.StoredGates{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for i := first; i < min(first+int(o.Limit), gates); i++ {
				list.Items = append(list.Items, gateclient.StoredGate{NodeGate: v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("g", i)}}})
			}
			if next := first + int(o.Limit); next < gates {
				list.Continue = strconv.Itoa(next)
			}
			return list, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errors.New("not supported")
			}
			return watch.NewFake(), nil
		},
	}
}

// Gates are read a few at a time, because their authors determine how large they are.
func TestFewGatesAreReadAtATime(t *testing.T) {
	const gates = 45
	asked := map[string]bool{}
	source := apiSource{listWatch: inPages(gates)}
	if err := source.CatchUp(t.Context(), func(ng *v1alpha1.NodeGate) bool { asked[ng.Name] = true; return true }); err != nil || len(asked) != gates {
		t.Errorf("catching up: %v after %d gates", err, len(asked))
	}

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	definition := func(context.Context) (*metav1.PartialObjectMetadata, error) { return nil, errors.New("not needed") }
	observed := FromAPIServer(inPages(gates), definition, logr.Discard(), clock.RealClock{}, nil)
	observed.Run(ctx, func() {
		if all, _ := observed.Gates(); len(all) == gates {
			stop()
		}
	})
	if all, _ := observed.Gates(); len(all) != gates {
		t.Errorf("%d gates are observed, want %d", len(all), gates)
	}
}
