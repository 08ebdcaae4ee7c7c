// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/internal/gate"
)

// ruleVersions are the versions of DeviceTaintRules, in order of preference: v1 is served
// since Kubernetes 1.37, the others only if they are enabled. A rule of v1alpha3 can also select
// devices by class or by CEL, which is ignored: more devices then count as tainted.
var ruleVersions = []string{"v1", "v1beta2", "v1alpha3"}

// ruleResource is the resource of DeviceTaintRules.
var ruleResource = resourcev1.Resource("devicetaintrules")

// rulesOf returns the source of DeviceTaintRules of a version.
func rulesOf(version string) gate.ObjectSource {
	return gate.ObjectSource{Group: resourcev1.GroupName, Version: version, Kind: "DeviceTaintRule"}
}

const (
	// noRulesVersion is the resource version of the empty list if DeviceTaintRules are not
	// served. No object has it.
	noRulesVersion = "1"
	// noRulesFor is the time after which it is checked again whether they are served.
	noRulesFor = 10 * time.Minute
	// bookmarkEvery is the time between bookmarks, as those of an API server.
	bookmarkEvery = time.Minute
)

// DeviceTaintRules returns the source of DeviceTaintRules, which are
// *unstructured.Unstructured. If the API server does not serve them, there are none.
func (c ObjectClients) DeviceTaintRules() *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: c.ListDeviceTaintRules, WatchFuncWithContext: c.watchDeviceTaintRules}
}

// ListDeviceTaintRules lists DeviceTaintRules. If the API server does not serve them, the
// list is empty.
func (c ObjectClients) ListDeviceTaintRules(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	for _, version := range ruleVersions {
		list, err := c.List(ctx, rulesOf(version), false, o)
		if errors.Is(err, ErrKindNotServed) {
			continue
		}
		return list, err
	}
	none := &unstructured.UnstructuredList{}
	none.SetResourceVersion(noRulesVersion)
	return none, nil
}

func (c ObjectClients) watchDeviceTaintRules(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	none := o.ResourceVersion == noRulesVersion
	for _, version := range ruleVersions {
		w, err := c.Source(rulesOf(version), false).WatchWithContext(ctx, o)
		switch {
		case errors.Is(err, ErrKindNotServed):
			continue
		case none && err == nil: // they are served now, and must be listed
			w.Stop()
			return nil, apierrors.NewResourceExpired("DeviceTaintRules are served now")
		}
		return w, err
	}
	if !none { // they are no longer served, or a stream is requested, which the caller replaces by a list
		return nil, fmt.Errorf("watching DeviceTaintRules: %w", ErrKindNotServed)
	}
	return newIdleWatch(ctx), nil
}

// newIdleWatch returns a watch of no objects. It sends bookmarks, and ends after noRulesFor.
func newIdleWatch(ctx context.Context) watch.Interface {
	ctx, cancel := context.WithTimeout(ctx, noRulesFor)
	events := make(chan watch.Event)
	go func() {
		defer close(events)
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			mark := &unstructured.Unstructured{Object: map[string]any{}}
			mark.SetResourceVersion(noRulesVersion)
			select {
			case <-ctx.Done():
				return
			case events <- watch.Event{Type: watch.Bookmark, Object: mark}:
			}
		}
	}()
	return idleWatch{events, cancel}
}

type idleWatch struct {
	events <-chan watch.Event
	cancel context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w idleWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w idleWatch) Stop() { w.cancel() }
