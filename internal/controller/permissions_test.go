// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/internal/controller/controllertest"
)

// If a permission cannot be reviewed, the first status waits as long as for anything else that is
// unknown, and no longer.
func TestFirstStatusIfAReviewFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", publishing))
		var patches atomic.Int32
		funcs := countPatches(&patches, &atomic.Bool{})
		funcs.Create = func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			review, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
			if ok && review.Spec.ResourceAttributes.Subresource == "status" {
				return apierrors.NewInternalError(errors.New("etcd is unavailable"))
			}
			return controllertest.PolicyOf(ctx, c, obj, o...)
		}
		defer w.start(logr.Discard(), funcs)()
		controllertest.Pass(statusInterval * 9 / 10)
		if n := patches.Load(); n != 0 {
			t.Errorf("%d writes of the status before the permission is known", n)
		}
		controllertest.Pass(statusInterval)
		if n := patches.Load(); n != 1 {
			t.Errorf("%d writes of the status after the interval, want 1", n)
		}
	})
}
