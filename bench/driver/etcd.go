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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// prefix is the prefix of the API server's keys.
	prefix = "/registry"

	// The rate at which objects are written, and the number of concurrent writes.
	// They stay below the number of events that the API server buffers for a slow
	// watcher.
	putsPerSecond = 2500
	putsAtOnce    = 8
	// The number of concurrent writes if there are no watchers.
	fillsAtOnce = 64

	// deletesAtOnce is the number of objects that one transaction deletes. etcd
	// allows 128.
	deletesAtOnce = 100
)

var serializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// A Stored is an object in the form in which the API server stores it in etcd.
type Stored struct {
	Key   string
	Value []byte
}

// StoreNode returns the stored form of a node.
func StoreNode(node *corev1.Node) (Stored, error) {
	stored := node.DeepCopy()
	stored.ResourceVersion = "" // that is etcd's to say
	return store(path.Join(prefix, "minions", node.Name), stored, "Node")
}

// StorePod returns the stored form of a pod.
func StorePod(pod *corev1.Pod) (Stored, error) {
	stored := pod.DeepCopy()
	stored.ResourceVersion = ""
	return store(path.Join(prefix, "pods", pod.Namespace, pod.Name), stored, "Pod")
}

// StoreConfigMap returns the stored form of a ConfigMap.
func StoreConfigMap(c *corev1.ConfigMap) (Stored, error) {
	stored := c.DeepCopy()
	stored.ResourceVersion = ""
	return store(path.Join(prefix, "configmaps", c.Namespace, c.Name), stored, "ConfigMap")
}

func store(key string, object runtime.Object, kind string) (Stored, error) {
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
	var value bytes.Buffer
	if err := serializer.Encode(object, &value); err != nil {
		return Stored{}, fmt.Errorf("encoding %s: %w", key, err)
	}
	return Stored{key, value.Bytes()}, nil
}

// A Speed is the number of writes of the driver, and the time that they took.
type Speed struct {
	Objects int
	Took    time.Duration
}

// String is of the form "5000 in 0.62 s".
func (s Speed) String() string { return fmt.Sprintf("%d in %.2f s", s.Objects, s.Took.Seconds()) }

// Put writes objects directly to etcd, as other API servers would: each in a
// separate write, so that each has its own resource version. Otherwise, an
// interrupted watch could not resume. It writes no faster than an API server
// sends events to its watchers on two cores, because the API server disconnects
// slow watchers.
func (d *Driver) Put(ctx context.Context, objects []Stored) (Speed, error) {
	return d.put(ctx, objects, rate.NewLimiter(putsPerSecond, putsAtOnce), putsAtOnce)
}

// Fill is like Put, but writes as fast as etcd allows. Use it only for objects that
// are not watched yet.
func (d *Driver) Fill(ctx context.Context, objects []Stored) (Speed, error) {
	return d.put(ctx, objects, rate.NewLimiter(rate.Inf, 0), fillsAtOnce)
}

func (d *Driver) put(ctx context.Context, objects []Stored, pace *rate.Limiter, atOnce int) (Speed, error) {
	start := time.Now()
	var puts errgroup.Group
	puts.SetLimit(atOnce)
	for _, object := range objects {
		if err := pace.Wait(ctx); err != nil {
			return Speed{}, errors.Join(err, puts.Wait())
		}
		puts.Go(func() error {
			if _, err := d.etcd.Put(ctx, object.Key, string(object.Value)); err != nil {
				return fmt.Errorf("writing %s into etcd: %w", object.Key, err)
			}
			return nil
		})
	}
	if err := puts.Wait(); err != nil {
		return Speed{}, err
	}
	return Speed{len(objects), time.Since(start)}, nil
}

// Delete removes objects from etcd immediately, regardless of their finalizers.
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

// Compact makes etcd discard the revisions that were outdated at the previous
// call, and returns when it has finished. Otherwise, a long run would fill the
// disk, and the API server would start a compaction during a measurement. Later
// revisions remain, because etcd sends the previous value to watchers, and the API
// server's watch fails if that is missing.
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
