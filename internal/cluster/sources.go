// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster/wire"
	"github.com/nodegate/nodegate/internal/gate"
)

// sources are where objects come from. Tests put others in their place.
type sources struct {
	nodes      *cache.ListWatch
	gates      *cache.ListWatch
	daemonSets func(namespace string) *cache.ListWatch
	// pods are those of a query. Their managed fields are there if it names an
	// annotation.
	pods     func(gate.PodQuery) *cache.ListWatch
	csiNodes *cache.ListWatch
	// resourceSlices are those of one DRA driver that are on some node.
	resourceSlices func(driver string) *cache.ListWatch
	// node reads one Node, as far as facts are made of it.
	node func(ctx context.Context, name string) (*corev1.Node, error)
	// definition reads the metadata of NodeGate's CustomResourceDefinition, as it
	// is at this moment.
	definition func(context.Context) (*metav1.PartialObjectMetadata, error)
}

// definitionName is the name of NodeGate's CustomResourceDefinition.
const definitionName = "nodegates." + v1alpha1.GroupName

var definitionResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

func newSources(config *rest.Config) (sources, error) {
	core, err := kubernetes.NewForConfig(coreConfig(config))
	if err != nil {
		return sources{}, fmt.Errorf("creating a client for core kinds: %w", err)
	}
	facts, err := newFactClients(config)
	if err != nil {
		return sources{}, err
	}
	gates, err := gateClient(config)
	if err != nil {
		return sources{}, fmt.Errorf("creating a client for NodeGates: %w", err)
	}
	definitions, err := metadata.NewForConfig(unlimited(config))
	if err != nil {
		return sources{}, fmt.Errorf("creating a client for metadata: %w", err)
	}
	return sources{
		nodes: cache.NewFilteredListWatchFromClient(facts.thin, "nodes", "", func(*metav1.ListOptions) {}),
		gates: cache.NewFilteredListWatchFromClient(gates, v1alpha1.Resource.Resource, "", func(*metav1.ListOptions) {}),
		daemonSets: func(namespace string) *cache.ListWatch {
			return cache.NewFilteredListWatchFromClient(core.AppsV1().RESTClient(), "daemonsets", namespace, func(*metav1.ListOptions) {})
		},
		pods: func(q gate.PodQuery) *cache.ListWatch {
			return cache.NewFilteredListWatchFromClient(facts.of(q), "pods", q.Namespace, func(o *metav1.ListOptions) {
				o.LabelSelector = q.Selector
				o.FieldSelector = onSomeNode
			})
		},
		csiNodes: cache.NewFilteredListWatchFromClient(core.StorageV1().RESTClient(), "csinodes", "", func(*metav1.ListOptions) {}),
		resourceSlices: func(driver string) *cache.ListWatch {
			return cache.NewFilteredListWatchFromClient(core.ResourceV1().RESTClient(), "resourceslices", "", func(o *metav1.ListOptions) {
				o.FieldSelector = localSlicesOf(driver)
			})
		},
		node: func(ctx context.Context, name string) (*corev1.Node, error) {
			return corev1client.New(facts.thin).Nodes().Get(ctx, name, metav1.GetOptions{})
		},
		definition: func(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
			return definitions.Resource(definitionResource).Get(ctx, definitionName, metav1.GetOptions{})
		},
	}, nil
}

// onSomeNode selects pods that are bound to a node.
var onSomeNode = fields.OneTermNotEqualSelector("spec.nodeName", "").String()

// localSlicesOf selects the ResourceSlices of a driver that name their node.
func localSlicesOf(driver string) string {
	return fields.AndSelectors(
		fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver),
		fields.OneTermNotEqualSelector(resourcev1.ResourceSliceSelectorNodeName, ""),
	).String()
}

// unlimited returns the configuration without client-go's own rate limit, if
// it does not ask for one.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	return config
}

// coreConfig returns the configuration for Kubernetes' own kinds, which speak
// protobuf.
func coreConfig(config *rest.Config) *rest.Config {
	config = unlimited(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// thinClient returns a client of the core group that decodes no more of Nodes and
// Pods than facts are made of (see package wire).
func thinClient(config *rest.Config, o wire.Options) (rest.Interface, error) {
	config = coreConfig(config)
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.APIPath = "/api"
	config.NegotiatedSerializer = wire.NewSerializer(rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion(), o)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for nodes and pods: %w", err)
	}
	return client, nil
}

// factClients are the clients that feeds of Nodes and Pods use.
type factClients struct {
	thin rest.Interface
	// marked decodes managed fields, too, which tell when a pod was marked.
	marked rest.Interface
}

func newFactClients(config *rest.Config) (factClients, error) {
	thin, err := thinClient(config, wire.Options{})
	if err != nil {
		return factClients{}, err
	}
	marked, err := thinClient(config, wire.Options{ManagedFields: true})
	return factClients{thin, marked}, err
}

// of returns the client for a query's pods.
func (c factClients) of(q gate.PodQuery) rest.Interface {
	if q.Annotation != "" {
		return c.marked
	}
	return c.thin
}

func gateClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	addStoredGates(scheme)
	config = unlimited(config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.APIPath = "/apis"
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}
