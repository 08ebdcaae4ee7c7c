// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/nodegate/nodegate/internal/kube/reflector"
)

// smallFleet is the number of nodes up to which CatchUpNodes reads all of them. In a larger fleet, a
// kubelet reports every few seconds (every five minutes each), which shows how late the watch is.
const smallFleet = 100

// CatchUpNodes waits until all changes that were made to known Nodes before the call have been observed,
// or returns why it no longer waits.
func (f *Feed) CatchUpNodes(ctx context.Context) error {
	var present string
	return reflector.CatchUp(ctx, func(ctx context.Context) error {
		if present == "" {
			version, all, err := f.readNodes(ctx)
			if err != nil || all {
				return err
			}
			present = version
		}
		return f.nodeFeed.Load().reaches(present)
	})
}

// readNodes reads some nodes from the API server and stores them. It returns the resource version of
// this state, and whether these are all nodes.
func (f *Feed) readNodes(ctx context.Context) (version string, all bool, err error) {
	list, err := f.sources.nodes.ListWithContext(ctx, metav1.ListOptions{Limit: smallFleet})
	if err != nil {
		return "", false, fmt.Errorf("listing Nodes: %w", err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return "", false, fmt.Errorf("listing Nodes: %w", err)
	}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		n, ok := o.(*corev1.Node)
		if !ok {
			return fmt.Errorf("listing Nodes: unexpected %T", o)
		}
		f.nodes.Observe(n)
		return nil
	})
	return m.GetResourceVersion(), m.GetContinue() == "", err
}

// reaches returns an error unless the feed has observed all changes up to a resource version.
func (f *nodeFeed) reaches(version string) error {
	known := ""
	if f != nil {
		known = f.Version()
	}
	if order, err := resourceversion.CompareResourceVersion(known, version); err != nil || order < 0 {
		return fmt.Errorf("changes of Nodes up to resource version %s have not been observed, only up to %q", version, known)
	}
	return nil
}
