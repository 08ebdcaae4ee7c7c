// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// CatchUp waits for the gates that the API server has, but not forever, and not if they cannot be
// listed.
func TestCatchUp(t *testing.T) {
	resource := v1alpha1.Resource.GroupResource()
	for name, c := range map[string]struct {
		gates    []string
		listErr  error
		listedAt time.Duration // from when the list succeeds
		hasAt    time.Duration // from when "late" is known; "early" always is
		want     string        // the error
		took     time.Duration
	}{
		"no gates":             {},
		"all are known":        {gates: []string{"early"}},
		"one is known later":   {gates: []string{"early", "late"}, hasAt: 2 * time.Second, took: 2 * time.Second},
		"one is never known":   {gates: []string{"late"}, hasAt: time.Hour, want: "gate late", took: reflector.CatchUpTimeout},
		"listed after a while": {gates: []string{"early"}, listErr: errors.New("no answer"), listedAt: 3 * time.Second, took: 3 * time.Second},
		"never listed":         {listErr: errors.New("no answer"), listedAt: time.Hour, want: "no answer", took: reflector.CatchUpTimeout},
		"not permitted":        {listErr: apierrors.NewForbidden(resource, "", errors.New("denied")), listedAt: time.Hour, want: "denied"},
		"no definition":        {listErr: apierrors.NewNotFound(resource, ""), listedAt: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				source := apiSource{listWatch: &cache.ListWatch{ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
					if o.ResourceVersion != "" {
						t.Errorf("listed at version %q, which need not be the latest one", o.ResourceVersion)
					}
					if time.Since(began) < c.listedAt {
						return nil, c.listErr
					}
					list := &gateclient.StoredGates{}
					for _, name := range c.gates {
						list.Items = append(list.Items, gateclient.StoredGate{NodeGate: v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: name}}})
					}
					return list, nil
				}}}
				err := source.CatchUp(t.Context(), func(ng *v1alpha1.NodeGate) bool {
					return ng.Name == "early" || time.Since(began) >= c.hasAt
				})
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("waited for %s, want %s", took, c.took)
				}
			})
		})
	}
}

// CatchUp ends with its context.
func TestCatchUpEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		source := apiSource{listWatch: &cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, errors.New("no answer")
		}}}
		began := time.Now()
		if err := source.CatchUp(ctx, nil); err == nil || time.Since(began) != time.Second {
			t.Errorf("error %v after %s, want one after a second", err, time.Since(began))
		}
	})
}
