// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
)

// ErrKindNotServed is wrapped by the error of reading objects of a kind that the API
// server does not serve.
var ErrKindNotServed = errors.New("the API server does not serve this kind: install its CustomResourceDefinition, or correct the gate")

var errUnwatchable = errors.New("the kind cannot be watched; use another kind")

// ObjectClients reads objects of any kind.
type ObjectClients struct {
	discovery discovery.ServerResourcesInterfaceWithContext
	whole     dynamic.Interface
	thin      metadata.Interface
}

// NewObjectClients returns the clients for objects of any kind.
func NewObjectClients(config *rest.Config) (ObjectClients, error) {
	config = restconfig.Unlimited(config)
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return ObjectClients{}, fmt.Errorf("creating a client for discovery: %w", err)
	}
	whole, err := dynamic.NewForConfig(config)
	if err != nil {
		return ObjectClients{}, fmt.Errorf("creating a client for objects: %w", err)
	}
	thin, err := metadata.NewForConfig(config)
	if err != nil {
		return ObjectClients{}, fmt.Errorf("creating a client for metadata: %w", err)
	}
	return ObjectClients{kinds, whole, thin}, nil
}

// Source returns a source of objects. They are *metav1.PartialObjectMetadata if
// metadataOnly is true, and *unstructured.Unstructured otherwise. Each request determines
// first how the API server serves the kind, because that may change.
func (c ObjectClients) Source(of gate.ObjectSource, metadataOnly bool) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.List(ctx, of, metadataOnly, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			resource, err := c.resource(ctx, of)
			if err != nil {
				return nil, err
			}
			o.LabelSelector = of.Selector
			var w watch.Interface
			if metadataOnly {
				w, err = c.thin.Resource(resource).Namespace(of.Namespace).Watch(ctx, o)
			} else {
				w, err = c.whole.Resource(resource).Namespace(of.Namespace).Watch(ctx, o)
			}
			return w, explain(of, resource, err)
		},
	}
}

// List lists the objects of a source.
func (c ObjectClients) List(ctx context.Context, of gate.ObjectSource, metadataOnly bool, o metav1.ListOptions) (runtime.Object, error) {
	resource, err := c.resource(ctx, of)
	if err != nil {
		return nil, err
	}
	o.LabelSelector = of.Selector
	var list runtime.Object
	if metadataOnly {
		list, err = c.thin.Resource(resource).Namespace(of.Namespace).List(ctx, o)
	} else {
		list, err = c.whole.Resource(resource).Namespace(of.Namespace).List(ctx, o)
	}
	if err != nil {
		return nil, explain(of, resource, err)
	}
	return list, nil
}

// resource returns the resource that the API server serves for the source's kind. It fails if
// none of the kind's resources can be watched.
func (c ObjectClients) resource(ctx context.Context, of gate.ObjectSource) (schema.GroupVersionResource, error) {
	version := schema.GroupVersion{Group: of.Group, Version: of.Version}
	served, err := c.discovery.ServerResourcesForGroupVersionWithContext(ctx, version.String())
	switch {
	case apierrors.IsNotFound(err):
		return schema.GroupVersionResource{}, fmt.Errorf("looking up %s: %w", of, ErrKindNotServed)
	case err != nil:
		return schema.GroupVersionResource{}, fmt.Errorf("looking up %s: %w", of, err)
	}
	failure := ErrKindNotServed
	for i := range served.APIResources {
		r := &served.APIResources[i]
		if r.Kind != of.Kind || strings.Contains(r.Name, "/") {
			continue
		}
		if !r.Namespaced && of.Namespace != "" {
			return schema.GroupVersionResource{}, fmt.Errorf("looking up %s: the kind is cluster-scoped; remove namespace from the gate", of)
		}
		if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
			failure = errUnwatchable
			continue
		}
		return version.WithResource(r.Name), nil
	}
	return schema.GroupVersionResource{}, fmt.Errorf("looking up %s: %w", of, failure)
}

// explain adds to an error what to do about it.
func explain(of gate.ObjectSource, resource schema.GroupVersionResource, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w (%w)", ErrKindNotServed, err)
	case apierrors.IsForbidden(err) && resource.GroupResource() == ruleResource:
		return fmt.Errorf("reading DeviceTaintRules, which minDevices requires, is not permitted: apply the ClusterRole of this version of nodegate (%w)", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("reading %s is not permitted: add {group: %q, resource: %s} to the chart's value observe, or pass --observe=%s to 'nodegate manifests' (%w)",
			of, resource.Group, resource.Resource, resource.GroupResource(), err)
	}
	return err
}
