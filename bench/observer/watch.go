// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodegate/nodegate/bench/child"
	"github.com/nodegate/nodegate/bench/fixture"
	"github.com/nodegate/nodegate/internal/kube/wire"
)

// Run is the main function of the observer process. Until ctx ends, it writes one
// line for each change of an object's states. The taint is that of the state Tainted.
func Run(ctx context.Context, kubeconfig string, taint corev1.Taint, out io.Writer) error {
	client, err := newClient(kubeconfig, "/api", corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	storage, err := newClient(kubeconfig, "/apis", storagev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	streams := []*stream{
		{resource: "nodes", source: cache.NewListWatchFromClient(client, "nodes", "", fields.Everything()), taint: taint, out: out},
		{resource: "pods", source: cache.NewListWatchFromClient(client, "pods", fixture.Namespace, fields.Everything()), taint: taint, out: out},
		{resource: "csinodes", source: cache.NewListWatchFromClient(storage, "csinodes", "", fields.Everything()), out: out},
	}
	for _, s := range streams {
		if err := s.start(ctx); err != nil {
			return fmt.Errorf("watching %s: %w", s.resource, err)
		}
	}
	if err := child.SayReady(out); err != nil {
		return err
	}
	var all errgroup.Group
	for _, s := range streams {
		all.Go(s.follow)
	}
	if err := all.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// newClient returns a client for a group that decodes only parts of nodes and pods: decoding whole
// objects would take CPU time from the measured processes. Each watch has its own
// connection, as HTTP/1.1 requires.
func newClient(kubeconfig, path string, group schema.GroupVersion) (rest.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.NextProtos = []string{"http/1.1"}
	config.ContentType = runtime.ContentTypeProtobuf
	config.APIPath, config.GroupVersion = path, &group
	config.NegotiatedSerializer = wire.NewSerializer(scheme.Codecs.WithoutConversion(), wire.Options{})
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client, nil
}

// A stream is a watch. The API server ends watches that are too slow, as on a busy
// machine; the watch is then resumed, and the interruption is reported.
type stream struct {
	resource string
	source   *cache.ListWatch
	taint    corev1.Taint
	out      io.Writer // each observation is one write

	existing runtime.Object
	events   <-chan watch.Event
	states   map[string]State
}

// start starts the watch.
func (s *stream) start(ctx context.Context) (err error) {
	s.states = map[string]State{}
	s.existing, s.events, err = child.Watch(ctx, s.source, func() {
		fmt.Fprintln(s.out, observation{interrupted, s.resource, time.Now()})
	})
	return err
}

// follow reports changes until the watch ends.
func (s *stream) follow() error {
	if err := meta.EachListItem(s.existing, func(o runtime.Object) error {
		return s.report(watch.Event{Type: watch.Added, Object: o}, time.Now())
	}); err != nil {
		return err
	}
	for event := range s.events {
		if err := s.report(event, time.Now()); err != nil {
			return fmt.Errorf("watching %s: %w", s.resource, err)
		}
	}
	return fmt.Errorf("watching %s: the watch ended", s.resource)
}

// report writes an observation if an event changes the states of its object.
func (s *stream) report(event watch.Event, now time.Time) error {
	var name string
	var states State
	switch o := event.Object.(type) {
	case *corev1.Node:
		name, states = o.Name, Open
		if slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&s.taint) }) {
			states = Tainted
		}
	case *corev1.Pod:
		name, states = o.Name, Unready
		if fixture.Ready(o) {
			states = Ready
		}
		if o.Spec.NodeName != "" {
			states |= Bound
		}
	case *storagev1.CSINode:
		name, states = CSINode(o.Name), Unregistered
		if len(o.Spec.Drivers) > 0 {
			states = Registered
		}
	default:
		return apierrors.FromObject(event.Object)
	}
	if event.Type == watch.Deleted {
		states = Gone
	}
	if states == s.states[name] {
		return nil
	}
	s.states[name] = states
	_, err := fmt.Fprintln(s.out, observation{states, name, now})
	return err
}
