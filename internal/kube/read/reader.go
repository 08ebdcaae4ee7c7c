// SPDX-License-Identifier: Apache-2.0

// Package read performs one-shot reads with the caller's credentials, for the verbs of
// kubectl gate. Objects are converted to facts in the same way as those that package feed
// watches.
package read

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
	"github.com/nodegate/nodegate/internal/kube/wire"
)

// Reader performs one-shot reads with the caller's credentials. It reads only what a
// request requires, and does not keep it up to date. Objects are converted to facts in
// the same way as those that a feed.Feed observes.
type Reader struct {
	core kubernetes.Interface
	// thin reads Nodes and pods for facts, and workloads all pods; both decode only what
	// is needed.
	thin      clients.FactClients
	workloads podReader
	gates     rest.Interface
	names     metadata.Interface
	others    dynamic.Interface
	// objects reads the objects that gates' object signals need.
	objects clients.ObjectClients
	clock   *clock
}

// NewReader returns a Reader for an API server.
func NewReader(config *rest.Config) (*Reader, error) {
	var server clock
	config = rest.CopyConfig(config)
	config.Wrap(server.observe)
	core, err := kubernetes.NewForConfig(restconfig.Core(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for core kinds: %w", err)
	}
	gates, err := gateclient.New(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for NodeGates: %w", err)
	}
	names, err := metadata.NewForConfig(restconfig.Unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for metadata: %w", err)
	}
	others, err := dynamic.NewForConfig(restconfig.Unlimited(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for other tools' kinds: %w", err)
	}
	objects, err := clients.NewObjectClients(config)
	if err != nil {
		return nil, err
	}
	thin, err := clients.NewFactClients(config)
	if err != nil {
		return nil, err
	}
	bulk, err := corev1client.NewForConfig(restconfig.Bulk(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for all pods: %w", err)
	}
	workloads := podReader{client: bulk.RESTClient(), decoder: wire.NewDecoder(scheme.Codecs, wire.Options{Workloads: true}), page: podPageSize}
	return &Reader{core: core, thin: thin, workloads: workloads, gates: gates, names: names, others: others, objects: objects, clock: &server}, nil
}

// Now returns the present time by the API server's clock, if there was a response, and otherwise by
// the clock of this machine, which may be wrong.
func (r *Reader) Now() time.Time { return r.clock.now() }

// Core returns the client for core kinds.
func (r *Reader) Core() kubernetes.Interface { return r.core }

// Gates returns all NodeGates, including those that cannot be read (see their ReadError).
// The error is NotFound if the API server does not serve NodeGates.
func (r *Reader) Gates(ctx context.Context) ([]v1alpha1.NodeGate, error) {
	var list gateclient.StoredGates
	if err := r.gates.Get().Resource(v1alpha1.Resource.Resource).Do(ctx).Into(&list); err != nil {
		return nil, fmt.Errorf("listing NodeGates: %w", err)
	}
	gates := make([]v1alpha1.NodeGate, 0, len(list.Items))
	for i := range list.Items {
		gates = append(gates, list.Items[i].NodeGate)
	}
	return gates, nil
}

// Node returns a Node.
func (r *Reader) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := r.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading node: %w", err)
	}
	return node, nil
}

// Nodes returns the Nodes that match a label selector.
func (r *Reader) Nodes(ctx context.Context, selector string) ([]corev1.Node, error) {
	list, err := r.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

// Lease returns the Lease of the controller that runs in a namespace.
func (r *Reader) Lease(ctx context.Context, namespace string) (*coordinationv1.Lease, error) {
	lease, err := r.core.CoordinationV1().Leases(namespace).Get(ctx, v1alpha1.LeaseName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the controller's lease: %w", err)
	}
	return lease, nil
}

// NodeNames returns the names of all Nodes.
func (r *Reader) NodeNames(ctx context.Context) ([]string, error) {
	list, err := r.nodeMetadata().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
