// SPDX-License-Identifier: Apache-2.0

// Package clients creates nodegate's clients for an API server, and classifies the errors
// that it returns. Nodes and Pods are decoded only as far as facts require (see package
// wire). A NodeGate that cannot be decoded is returned with its ReadError instead of
// failing the whole list.
package clients

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/wire"
)

// OnSomeNode is a field selector for pods that are bound to a node.
var OnSomeNode = fields.OneTermNotEqualSelector("spec.nodeName", "").String()

// LocalSlicesOf returns a field selector for the driver's ResourceSlices that name their
// node.
func LocalSlicesOf(driver string) string {
	return fields.AndSelectors(
		fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver),
		fields.OneTermNotEqualSelector(resourcev1.ResourceSliceSelectorNodeName, ""),
	).String()
}

// Unlimited returns a copy of config with client-go's default rate limit disabled. A rate
// limit that config sets explicitly is kept.
func Unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	return config
}

// CoreConfig returns a copy of config for built-in kinds, which are encoded as protobuf.
func CoreConfig(config *rest.Config) *rest.Config {
	config = Unlimited(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// ThinClient returns a client for the core group that decodes only those parts of Nodes
// and Pods that facts require (see package wire).
func ThinClient(config *rest.Config, o wire.Options) (rest.Interface, error) {
	config = CoreConfig(config)
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

// FactClients holds the clients for the feeds of Nodes and Pods.
type FactClients struct {
	Thin rest.Interface
	// marked also decodes managed fields, which contain the time at which a pod was
	// marked.
	marked rest.Interface
}

// NewFactClients returns the clients for feeds of Nodes and Pods.
func NewFactClients(config *rest.Config) (FactClients, error) {
	thin, err := ThinClient(config, wire.Options{})
	if err != nil {
		return FactClients{}, err
	}
	marked, err := ThinClient(config, wire.Options{ManagedFields: true})
	return FactClients{thin, marked}, err
}

// Of returns the client for the pods that q selects.
func (c FactClients) Of(q gate.PodQuery) rest.Interface {
	if q.Annotation != "" {
		return c.marked
	}
	return c.Thin
}

// GateClient returns a client for NodeGates that decodes them as StoredGate.
func GateClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	addStoredGates(scheme)
	config = Unlimited(config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.APIPath = "/apis"
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// Instant converts t to UTC, so that equal times compare equal with ==.
func Instant(t metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
