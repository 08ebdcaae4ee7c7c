// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/bench/driver"
	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/testbed"
)

//go:embed p09_configmaps.yaml
var configMapPolicy []byte

// byConfigMap is the contender whose policy takes a ConfigMap as its parameter.
const byConfigMap = "configmap"

// configMapBytes is the size of the text in each ConfigMap: a certificate or two,
// as they are in every namespace.
const configMapBytes = 2 << 10

// heaps are the API server's live heap, in MiB, after each thing that was added.
type heaps struct {
	before, again, idle, ours, configMap float64
}

// measureHeaps adds one policy after the other to an API server that has many
// ConfigMaps, and nodegate's manifests but for the birth policy.
func measureHeaps(ctx context.Context, configMaps int) (h heaps, err error) {
	b, err := newBirths(ctx)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	installed, ours, err := splitManifests()
	if err != nil {
		return h, err
	}
	idle, err := testbed.ParseObjects(idlePolicies)
	if err != nil {
		return h, err
	}
	withParameter, err := testbed.ParseObjects(configMapPolicy)
	if err != nil {
		return h, err
	}
	err = errors.Join(b.fill(ctx, configMaps), b.writeParameter(ctx, nodegateNamespace, 1, 1), b.applier.Apply(ctx, installed...))
	if err != nil {
		return h, err
	}
	for _, step := range []struct {
		into    *float64
		objects []*unstructured.Unstructured
		shows   contender
	}{
		{&h.before, nil, contender{name: byNobody}},
		{&h.again, nil, contender{name: byNobody}},
		{&h.idle, idle, contender{name: byConstant}},
		{&h.ours, ours, contender{name: byNobody, selecting: 1}},
		{&h.configMap, withParameter, contender{name: byConfigMap, selecting: 2}}, // ours closes this one, too
	} {
		if *step.into, err = b.heapWith(ctx, &step.shows, step.objects); err != nil {
			return h, err
		}
	}
	return h, nil
}

// splitManifests returns what 'nodegate manifests' prints without the birth
// policy, and the birth policy with its bindings.
func splitManifests() (others, birth []*unstructured.Unstructured, err error) {
	objects, err := manifests(admission.ByPolicy)
	for _, o := range objects {
		if strings.HasPrefix(o.GetKind(), "MutatingAdmissionPolicy") {
			birth = append(birth, o)
		} else {
			others = append(others, o)
		}
	}
	return others, birth, err
}

// heapWith applies objects, and measures when Nodes come out as they should.
func (b *births) heapWith(ctx context.Context, shows *contender, objects []*unstructured.Unstructured) (float64, error) {
	if err := b.applier.Apply(ctx, objects...); err != nil {
		return 0, err
	}
	if err := b.await(ctx, shows); err != nil {
		return 0, err
	}
	return b.heap(ctx)
}

// fill puts ConfigMaps into etcd, and returns when the API server has them all.
func (b *births) fill(ctx context.Context, count int) (err error) {
	d, err := driver.New(ctx, b.cluster)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	text := strings.Repeat("certificate ", configMapBytes/len("certificate "))
	stored := make([]driver.Stored, count)
	for i := range stored {
		stored[i], err = driver.StoreConfigMap(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("authority-%05d", i), Namespace: "default", UID: uuid.NewUUID(), CreationTimestamp: metav1.Now(),
			},
			Data: map[string]string{"ca.crt": text},
		})
		if err != nil {
			return err
		}
	}
	if _, err := d.Fill(ctx, stored); err != nil {
		return err
	}
	// A list that may not be stale is answered when everything before it has
	// arrived.
	if _, err := b.admin.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("listing ConfigMaps: %w", err)
	}
	return nil
}

// collections is how often the API server's garbage is collected before its heap
// is measured: what has a finalizer takes two, and the least of several is what is
// alive.
const collections = 4

// heap returns the API server's live heap in MiB.
func (b *births) heap(ctx context.Context) (float64, error) {
	config := b.cluster.Admin()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, fmt.Errorf("creating a client: %w", err)
	}
	least := math.Inf(1)
	for range collections {
		live, err := meter.LiveHeap(ctx, client, config.Host)
		if err != nil {
			return 0, err
		}
		least = min(least, float64(live)/(1<<20))
	}
	return least, nil
}
