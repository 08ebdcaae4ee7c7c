// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
	"github.com/nodegate/nodegate/internal/kube/gates"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
)

// sources provides objects. Tests replace it.
type sources struct {
	nodes      *cache.ListWatch
	gates      *cache.ListWatch
	daemonSets func(namespace string) *cache.ListWatch
	// pods returns the source of a query's pods. It includes managed fields if the query
	// has an annotation.
	pods           func(gate.PodQuery) *cache.ListWatch
	csiNodes       *cache.ListWatch
	resourceSlices func(SliceSource) *cache.ListWatch
	// deviceTaintRules provides the DeviceTaintRules, and none if they are not served.
	deviceTaintRules *cache.ListWatch
	// objects returns the source of objects of any kind, or of their metadata.
	objects func(of gate.ObjectSource, metadataOnly bool) *cache.ListWatch
	// node reads one Node, decoded as far as facts require.
	node func(ctx context.Context, name string) (*corev1.Node, error)
	// definition reads the current metadata of NodeGate's CustomResourceDefinition.
	definition func(context.Context) (*metav1.PartialObjectMetadata, error)
}

func newSources(config *rest.Config) (sources, error) {
	core, err := kubernetes.NewForConfig(restconfig.Core(config))
	if err != nil {
		return sources{}, fmt.Errorf("creating a client for core kinds: %w", err)
	}
	facts, err := clients.NewFactClients(config)
	if err != nil {
		return sources{}, err
	}
	nodeGates, err := gateclient.New(config)
	if err != nil {
		return sources{}, fmt.Errorf("creating a client for NodeGates: %w", err)
	}
	definitions, err := metadata.NewForConfig(restconfig.Unlimited(config))
	if err != nil {
		return sources{}, fmt.Errorf("creating a client for metadata: %w", err)
	}
	objects, err := clients.NewObjectClients(config)
	if err != nil {
		return sources{}, err
	}
	return sources{
		objects:          objects.Source,
		deviceTaintRules: objects.DeviceTaintRules(),
		nodes:            cache.NewFilteredListWatchFromClient(facts.Thin, "nodes", "", func(*metav1.ListOptions) {}),
		gates:            cache.NewFilteredListWatchFromClient(nodeGates, v1alpha1.Resource.Resource, "", func(*metav1.ListOptions) {}),
		daemonSets: func(namespace string) *cache.ListWatch {
			return cache.NewFilteredListWatchFromClient(core.AppsV1().RESTClient(), "daemonsets", namespace, func(*metav1.ListOptions) {})
		},
		pods: func(q gate.PodQuery) *cache.ListWatch {
			return cache.NewFilteredListWatchFromClient(facts.Of(q), "pods", q.Namespace, func(o *metav1.ListOptions) {
				o.LabelSelector = q.Selector
				o.FieldSelector = clients.OnSomeNode
			})
		},
		csiNodes: cache.NewFilteredListWatchFromClient(core.StorageV1().RESTClient(), "csinodes", "", func(*metav1.ListOptions) {}),
		resourceSlices: func(of SliceSource) *cache.ListWatch {
			return cache.NewFilteredListWatchFromClient(core.ResourceV1().RESTClient(), "resourceslices", "", func(o *metav1.ListOptions) {
				o.FieldSelector = of.FieldSelector()
			})
		},
		node: func(ctx context.Context, name string) (*corev1.Node, error) {
			return corev1client.New(facts.Thin).Nodes().Get(ctx, name, metav1.GetOptions{})
		},
		definition: func(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
			return definitions.Resource(gates.DefinitionResource).Get(ctx, gates.DefinitionName, metav1.GetOptions{})
		},
	}, nil
}
