// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ErrNotServed is wrapped by the error of a feed if the API server does not serve the
// feed's kind.
var ErrNotServed = errors.New("the API server does not serve ResourceSlices of resource.k8s.io/v1, which requires Kubernetes 1.34 " +
	"or newer: enable dynamic resource allocation, or remove the gate's resourceSlices signal")

// ExplainNotServed wraps err in ErrNotServed if it is a NotFound error.
func ExplainNotServed(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w (%w)", ErrNotServed, err)
	}
	return err
}

// ExplainingNotServed makes the errors of a source of ResourceSlices explain that the API
// server does not serve them. The feed continues to retry, because the API server may serve
// them later.
func ExplainingNotServed(inner *cache.ListWatch) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, o)
			return list, ExplainNotServed(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, o)
			return w, ExplainNotServed(err)
		},
	}
}
