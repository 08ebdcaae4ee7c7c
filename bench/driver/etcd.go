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
	// prefix is where the API server keeps its objects.
	prefix = "/registry"

	// How fast objects are written, and how many at a time: fewer than the API
	// server keeps for a watcher that is behind.
	putsPerSecond = 2500
	putsAtOnce    = 8
	// How many are written at a time where there are no watchers.
	fillsAtOnce = 64

	// deletesAtOnce is how many objects one transaction deletes; etcd takes 128.
	deletesAtOnce = 100
)

var serializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// A Stored object is one as the API server keeps it in etcd.
type Stored struct {
	Key   string
	Value []byte
}

// StoreNode returns a node as it is stored.
func StoreNode(node *corev1.Node) (Stored, error) {
	stored := node.DeepCopy()
	stored.ResourceVersion = "" // that is etcd's to say
	return store(path.Join(prefix, "minions", node.Name), stored, "Node")
}

// StorePod returns a pod as it is stored.
func StorePod(pod *corev1.Pod) (Stored, error) {
	stored := pod.DeepCopy()
	stored.ResourceVersion = ""
	return store(path.Join(prefix, "pods", pod.Namespace, pod.Name), stored, "Pod")
}

// StoreConfigMap returns a ConfigMap as it is stored.
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

// A Speed says how fast the driver was.
type Speed struct {
	Objects int
	Took    time.Duration
}

// String is of the form "5000 in 0.62 s".
func (s Speed) String() string { return fmt.Sprintf("%d in %.2f s", s.Objects, s.Took.Seconds()) }

// Put writes objects straight into etcd, as they would arrive from other API
// servers: each in a write of its own, so that each has a resource version of its
// own, without which a watch that is cut off cannot be taken up again. It writes
// no faster than an API server passes on to its watchers on two cores: slower
// ones it cuts off.
func (d *Driver) Put(ctx context.Context, objects []Stored) (Speed, error) {
	return d.put(ctx, objects, rate.NewLimiter(putsPerSecond, putsAtOnce), putsAtOnce)
}

// Fill is Put for when nobody watches such objects yet: as fast as etcd takes them.
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

// Delete removes objects from etcd, at once and whatever their finalizers say.
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

// Compact has etcd forget what had been written over when it was called before,
// and returns when it has: else a long run would fill its disk, and the API server
// would have it done while something is measured. What was written since stays,
// because etcd tells watchers what was there before, too; if that is gone, the API
// server's own watch breaks off.
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
