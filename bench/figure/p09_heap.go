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

const (
	// byConfigMap is the contender whose policy has a ConfigMap as its parameter.
	byConfigMap = "configmap"

	// configMapBytes is the size of each ConfigMap, which is that of one or two
	// certificates, as in the kube-root-ca.crt of every namespace.
	configMapBytes = 2 << 10

	// collections is the number of garbage collections. The smallest live heap after any
	// of them counts, because objects with finalizers survive the first one.
	collections = 4
)

// heaps contains the API server's live heap in MiB before anything is added, again
// without a change, and after each further policy.
type heaps struct {
	before, again, others, birth, configMap float64
}

// measureHeaps adds one policy after the other to an API server that has many ConfigMaps
// and nodegate's manifests except the birth policy.
func measureHeaps(ctx context.Context, configMaps int) (h heaps, err error) {
	b, err := newBirths(ctx)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	installed, birth, err := splitManifests()
	if err != nil {
		return h, err
	}
	others, err := testbed.ParseObjects(idlePolicies)
	if err != nil {
		return h, err
	}
	withParameter, err := testbed.ParseObjects(configMapPolicy)
	if err != nil {
		return h, err
	}
	err = errors.Join(b.fill(ctx, configMaps), b.writeParameter(ctx, nodegateNamespace, 1, 1), b.Applier.Apply(ctx, installed...))
	if err != nil {
		return h, err
	}
	for _, step := range []struct {
		into    *float64
		objects []*unstructured.Unstructured
		shows   contender
	}{
		{&h.before, nil, contender{name: byNothing}},
		{&h.again, nil, contender{name: byNothing}},
		{&h.others, others, contender{name: byConstant}},
		{&h.birth, birth, contender{name: byNothing, selecting: 1}},
		{&h.configMap, withParameter, contender{name: byConfigMap, selecting: 2}}, // the birth policy applies, too
	} {
		if err := b.Applier.Apply(ctx, step.objects...); err != nil {
			return h, err
		}
		if err := b.await(ctx, &step.shows); err != nil {
			return h, err
		}
		if *step.into, err = b.heap(ctx); err != nil {
			return h, err
		}
	}
	return h, nil
}

// splitManifests returns the output of 'nodegate manifests' without the birth policy, and
// the birth policy with its bindings.
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

// fill writes ConfigMaps to etcd, and returns when the API server has received them all.
func (b *births) fill(ctx context.Context, count int) error {
	text := strings.Repeat("certificate ", configMapBytes/len("certificate "))
	err := driver.Fill(ctx, b.Driver, count, func(i int) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("authority-%05d", i), Namespace: "default", UID: uuid.NewUUID(), CreationTimestamp: metav1.Now(),
			},
			Data: map[string]string{"ca.crt": text},
		}
	})
	if err != nil {
		return err
	}
	// The API server answers a consistent list when it has received all previous writes.
	if _, err := b.Driver.Client().CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("listing ConfigMaps: %w", err)
	}
	return nil
}

// heap returns the API server's live heap in MiB.
func (b *births) heap(ctx context.Context) (float64, error) {
	config := b.Cluster.Admin()
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
		least = min(least, float64(live)/mebibyte)
	}
	return least, nil
}
