// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// prefix is the common prefix of the API server's keys.
	prefix = "/registry"

	// Rate and concurrency of writes to watched keys. They do not exceed the number of
	// events that the API server buffers for a slow watcher.
	putsPerSecond = 2500
	putsAtOnce    = 8

	// fillsAtOnce is the concurrency of writes to keys that are not watched.
	fillsAtOnce = 64

	// deletesAtOnce is the number of deletions in a transaction. etcd allows 128.
	deletesAtOnce = 100
)

var serializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// An Object is a Node, a Pod, a ConfigMap or a CSINode.
type Object interface {
	runtime.Object
	metav1.Object
}

// A Stored is an object in the form in which the API server stores it in etcd.
type Stored struct {
	Key   string
	Value []byte
}

// Store returns the stored form of an object.
func Store(object Object) (Stored, error) {
	kind, resource := corev1.SchemeGroupVersion.WithKind("Node"), "minions"
	switch object.(type) {
	case *corev1.Pod:
		kind, resource = corev1.SchemeGroupVersion.WithKind("Pod"), "pods"
	case *corev1.ConfigMap:
		kind, resource = corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps"
	case *storagev1.CSINode:
		kind, resource = storagev1.SchemeGroupVersion.WithKind("CSINode"), "csinodes"
	}
	stored := object.DeepCopyObject().(Object)
	stored.SetResourceVersion("") // it is etcd's revision
	stored.GetObjectKind().SetGroupVersionKind(kind)
	key := path.Join(prefix, resource, object.GetNamespace(), object.GetName())
	var value bytes.Buffer
	if err := serializer.Encode(stored, &value); err != nil {
		return Stored{}, fmt.Errorf("encoding %s: %w", key, err)
	}
	return Stored{key, value.Bytes()}, nil
}

// StoreAll returns the stored form of count objects.
func StoreAll[O Object](count int, object func(i int) O) ([]Stored, error) {
	all := make([]Stored, count)
	for i := range all {
		var err error
		if all[i], err = Store(object(i)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// A Speed is the number of writes of the driver, and the time that they took.
type Speed struct {
	Objects int
	Took    time.Duration
}

// String returns a text such as "5000 in 0.62 s".
func (s Speed) String() string { return fmt.Sprintf("%d in %.2f s", s.Objects, s.Took.Seconds()) }

// Put writes objects directly to etcd, as other API servers would, at the rate at which
// an API server on two cores can send events to its watchers; it disconnects slow
// watchers. Each object is a separate write with its own resource version, so that an
// interrupted watch can be resumed after any of them.
func (d *Driver) Put(ctx context.Context, objects []Stored) (Speed, error) {
	return d.PutAt(ctx, objects, putsPerSecond)
}

// PutAt is like Put, with another rate per second.
func (d *Driver) PutAt(ctx context.Context, objects []Stored, perSecond float64) (Speed, error) {
	pace := rate.NewLimiter(rate.Limit(perSecond), putsAtOnce)
	start := time.Now()
	var puts errgroup.Group
	puts.SetLimit(putsAtOnce)
	for _, object := range objects {
		if err := pace.Wait(ctx); err != nil {
			return Speed{}, errors.Join(err, puts.Wait())
		}
		puts.Go(func() error { return d.put(ctx, object) })
	}
	if err := puts.Wait(); err != nil {
		return Speed{}, err
	}
	return Speed{len(objects), time.Since(start)}, nil
}

// Fill writes count objects to etcd as fast as possible. They must not be watched yet.
// The function is called concurrently.
func Fill[O Object](ctx context.Context, d *Driver, count int, object func(i int) O) error {
	puts, ctx := errgroup.WithContext(ctx)
	puts.SetLimit(fillsAtOnce)
	for i := range count {
		puts.Go(func() error {
			stored, err := Store(object(i))
			if err != nil {
				return err
			}
			return d.put(ctx, stored)
		})
	}
	return puts.Wait()
}

func (d *Driver) put(ctx context.Context, object Stored) error {
	if _, err := d.etcd.Put(ctx, object.Key, string(object.Value)); err != nil {
		return fmt.Errorf("writing %s to etcd: %w", object.Key, err)
	}
	return nil
}

// Delete deletes objects from etcd, regardless of their finalizers.
func (d *Driver) Delete(ctx context.Context, keys []string) error {
	for batch := range slices.Chunk(keys, deletesAtOnce) {
		deletes := make([]clientv3.Op, len(batch))
		for i, key := range batch {
			deletes[i] = clientv3.OpDelete(key)
		}
		if _, err := d.etcd.Txn(ctx).Then(deletes...).Commit(); err != nil {
			return fmt.Errorf("deleting %s and %d more from etcd: %w", batch[0], len(batch)-1, err)
		}
	}
	return nil
}

// Compact makes etcd discard the revisions that were outdated at the previous call, and
// returns when it has finished. Otherwise, a long run would fill the disk, and the API
// server would start a compaction during a measurement. Later revisions must remain: the
// API server's watch fails if etcd cannot send the previous value of a changed key.
func (d *Driver) Compact(ctx context.Context) error {
	now, err := d.etcd.Get(ctx, prefix, clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	before := d.revision
	d.revision = now.Header.Revision
	if before == 0 {
		return nil
	}
	_, err = d.etcd.Compact(ctx, before, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	return nil
}
