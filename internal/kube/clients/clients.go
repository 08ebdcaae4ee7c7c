// SPDX-License-Identifier: Apache-2.0

// Package clients creates nodegate's clients for an API server, and classifies the errors
// that it returns. Nodes and Pods are decoded only as far as facts require (see package
// wire).
package clients

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
	"github.com/nodegate/nodegate/internal/kube/wire"
)

// OnSomeNode is a field selector for pods that are bound to a node.
var OnSomeNode = fields.OneTermNotEqualSelector("spec.nodeName", "").String()

// LocalSlicesOf returns a field selector for the driver's ResourceSlices that name their
// node. An empty driver stands for all drivers.
func LocalSlicesOf(driver string) string {
	return slicesOf(driver, fields.OneTermNotEqualSelector(resourcev1.ResourceSliceSelectorNodeName, ""))
}

// SharedSlicesOf returns a field selector for the driver's ResourceSlices that do not name
// a node. An empty driver stands for all drivers.
func SharedSlicesOf(driver string) string {
	return slicesOf(driver, fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, ""))
}

func slicesOf(driver string, where fields.Selector) string {
	if driver == "" {
		return where.String()
	}
	return fields.AndSelectors(fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver), where).String()
}

// ThinClient returns a client for the core group that decodes only those parts of Nodes
// and Pods that facts require (see package wire).
func ThinClient(config *rest.Config, o wire.Options) (rest.Interface, error) {
	config = restconfig.Core(config)
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
	// byOptions has Thin, and clients that decode more.
	byOptions map[wire.Options]rest.Interface
}

// NewFactClients returns the clients for feeds of Nodes and Pods.
func NewFactClients(config *rest.Config) (FactClients, error) {
	all := make(map[wire.Options]rest.Interface)
	for _, o := range []wire.Options{{}, {ManagedFields: true}, {ContainerStates: true}, {ManagedFields: true, ContainerStates: true}} {
		client, err := ThinClient(config, o)
		if err != nil {
			return FactClients{}, err
		}
		all[o] = client
	}
	return FactClients{all[wire.Options{}], all}, nil
}

// Of returns the client for the pods that q selects.
func (c FactClients) Of(q gate.PodQuery) rest.Interface {
	// Managed fields contain the time at which a pod was marked.
	return c.byOptions[wire.Options{ManagedFields: q.Annotation != "", ContainerStates: q.Runs}]
}

// Instant converts t to UTC, so that equal times compare equal with ==.
func Instant(t metav1.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
