// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/testcluster/await"
)

// remaining are the prefixes of the etcd keys that a test may leave behind: events end by
// themselves, and without its controller, a namespace cannot be deleted.
var remaining = []string{"/registry/events/", "/registry/namespaces/", "/registry/serviceaccounts/"}

// objectKeys returns the etcd keys of the cluster's objects, without those that may remain.
func (e *env) objectKeys(ctx context.Context) ([]string, error) {
	etcd, err := recording.Connect(e.cluster)
	if err != nil {
		return nil, err
	}
	defer etcd.Close()
	all, err := etcd.Get(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("listing keys of etcd: %w", err)
	}
	var keys []string
	for _, kv := range all.Kvs {
		key := string(kv.Key)
		if !slices.ContainsFunc(remaining, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// leavesNothing waits until exactly the given objects exist, because the next test in the cluster may
// depend on what is left. The API server needs a moment for a deleted CustomResourceDefinition.
func (e *env) leavesNothing(ctx context.Context, before []string) error {
	return await.Until(ctx, "nothing of the test to be left", func(ctx context.Context) error {
		after, err := e.objectKeys(ctx)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(after), func(key string) bool { return slices.Contains(before, key) })
		gone := slices.DeleteFunc(slices.Clone(before), func(key string) bool { return slices.Contains(after, key) })
		return errUnless(len(left)+len(gone) == 0, fmt.Sprintf("the test has left %q and deleted %q", left, gone))
	})
}
