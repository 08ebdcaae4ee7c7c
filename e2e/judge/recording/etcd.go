// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
	"github.com/nodegate/nodegate/testcluster/await"
)

// registry is the prefix of the API server's keys in etcd.
const registry = "/registry/"

// kept maps the kinds that the judge reads to their key prefixes below registry.
var kept = map[revisions.Kind]string{
	revisions.KindNode:          "minions/",
	revisions.KindPod:           "pods/",
	revisions.KindCSINode:       "csinodes/",
	revisions.KindResourceSlice: "resourceslices/",
	revisions.KindDaemonSet:     "daemonsets/",
	revisions.KindNodeGate:      "nodegate.dev/nodegates/",
	revisions.KindPolicy:        "mutatingadmissionpolicies/",
	revisions.KindBinding:       "mutatingadmissionpolicybindings/",
}

// keepRevisions are the API server flags that turn off compaction, which otherwise
// removes revisions from etcd after five minutes.
var keepRevisions = []string{"--etcd-compaction-interval=0"}

func currentRevision(ctx context.Context, client *clientv3.Client) (int64, error) {
	now, err := client.Get(ctx, registry, clientv3.WithCountOnly(), clientv3.WithPrefix())
	if err != nil {
		return 0, fmt.Errorf("reading etcd's revision: %w", err)
	}
	return now.Header.Revision, nil
}

// readEtcd returns the objects at revision from, all their later versions, etcd's current
// revision, to, and the time end at which it was current: reading takes long after a long
// run, and nothing is known about what is written meanwhile. If from is 0 or 1, it reads
// from the beginning. It fails if etcd no longer has all of these revisions.
func readEtcd(ctx context.Context, client *clientv3.Client, from int64) (versions []revisions.Version, to int64, end time.Time, err error) {
	from = max(from, 1)
	if to, err = currentRevision(ctx, client); err != nil {
		return nil, 0, end, err
	}
	end = time.Now()
	if from > to {
		return nil, 0, end, fmt.Errorf("reading etcd from revision %d: its current revision is %d", from, to)
	}
	for kind, path := range kept {
		found, err := readKind(ctx, client, kind, registry+path, from, to)
		if err != nil {
			return nil, 0, end, fmt.Errorf("reading the %ss of revisions %d to %d: %w", kind, from, to, explain(err))
		}
		versions = append(versions, found...)
	}
	return versions, to, end, nil
}

// AwaitQuiet waits until no Node has been written for the duration quiet. It returns
// false if this takes longer than limit; 0 means no limit.
func AwaitQuiet(ctx context.Context, client *clientv3.Client, quiet, limit time.Duration) (bool, error) {
	begun := time.Now()
	since, last := begun, int64(0)
	for time.Since(since) < quiet {
		if limit > 0 && time.Since(begun) > limit {
			return false, nil
		}
		response, err := client.Get(ctx, registry+kept[revisions.KindNode], append(clientv3.WithLastRev(), clientv3.WithPrefix())...)
		if err != nil {
			return false, fmt.Errorf("reading etcd: %w", err)
		}
		if len(response.Kvs) > 0 && response.Kvs[0].ModRevision != last {
			last, since = response.Kvs[0].ModRevision, time.Now()
		}
		if err := await.Pause(ctx, 50*time.Millisecond); err != nil {
			return false, err
		}
	}
	return true, nil
}

// explain adds the required flags to an error that is due to compaction.
func explain(err error) error {
	if errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("%w; start the API server with %s", err, strings.Join(keepRevisions, " "))
	}
	return err
}

func readKind(ctx context.Context, client *clientv3.Client, kind revisions.Kind, prefix string, from, to int64) ([]revisions.Version, error) {
	start, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from))
	if err != nil {
		return nil, err
	}
	var versions []revisions.Version
	add := func(kv *mvccpb.KeyValue, deleted bool) error {
		v, err := decode(kind, prefix, kv, deleted)
		if err != nil {
			return fmt.Errorf("decoding %s of revision %d: %w", kv.Key, kv.ModRevision, err)
		}
		versions = append(versions, v)
		return nil
	}
	for _, kv := range start.Kvs {
		if err := add(kv, false); err != nil {
			return nil, err
		}
	}
	if from == to {
		return versions, nil
	}
	return versions, watch(ctx, client, prefix, from+1, to, add)
}

// watch calls add for each event below a prefix in the revisions from to to.
func watch(ctx context.Context, client *clientv3.Client, prefix string, from, to int64, add func(kv *mvccpb.KeyValue, deleted bool) error) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from))
	// A progress request makes etcd confirm that there are no more events up to a
	// revision. It is repeated, because etcd may ignore it while the watch is behind.
	ask := time.NewTicker(20 * time.Millisecond)
	defer ask.Stop()
	for {
		select {
		case <-ask.C:
			if err := client.RequestProgress(ctx); err != nil {
				return fmt.Errorf("asking etcd for progress: %w", err)
			}
		case response, open := <-events:
			if !open {
				return errors.Join(errors.New("etcd ended the watch"), ctx.Err())
			}
			if err := response.Err(); err != nil {
				return err
			}
			for _, event := range response.Events {
				if event.Kv.ModRevision > to {
					return nil
				}
				if err := add(event.Kv, event.Type == mvccpb.Event_DELETE); err != nil {
					return err
				}
			}
			if response.IsProgressNotify() && response.Header.Revision >= to {
				return nil
			}
		}
	}
}

func decode(kind revisions.Kind, prefix string, kv *mvccpb.KeyValue, deleted bool) (revisions.Version, error) {
	v := revisions.Version{ID: revisions.ID{Kind: kind}, Revision: kv.ModRevision, Created: kv.CreateRevision}
	v.Name = strings.TrimPrefix(string(kv.Key), prefix)
	if namespace, name, namespaced := strings.Cut(v.Name, "/"); namespaced {
		v.Namespace, v.Name = namespace, name
	}
	if deleted {
		return v, nil
	}
	if kind == revisions.KindNodeGate {
		var ng v1alpha1.NodeGate
		if err := json.Unmarshal(kv.Value, &ng); err != nil {
			return v, err
		}
		v.Object = &ng
		return v, nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(kv.Value, nil, nil)
	if err != nil {
		return v, err
	}
	meta, ok := object.(metav1.Object)
	if !ok {
		return v, fmt.Errorf("%T has no metadata", object)
	}
	v.Object = meta
	return v, nil
}
