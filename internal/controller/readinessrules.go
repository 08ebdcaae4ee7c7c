// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeReadinessRules of kubernetes-sigs/node-readiness-controller also manage taint keys.
// Two controllers that manage the same key would revert each other's changes on every
// node, so a gate with such a key is not accepted.

var (
	readinessRule     = schema.GroupVersionKind{Group: "readiness.node.x-k8s.io", Version: "v1alpha1", Kind: "NodeReadinessRule"}
	readinessRuleList = readinessRule.GroupVersion().WithKind(readinessRule.Kind + "List")
)

const (
	// rulesInterval is the period of listing rules while no gate changes and no change of
	// a rule is observed, and of attempts to watch rules after one has failed.
	rulesInterval = time.Minute
	rulesTimeout  = 5 * time.Second
	// rulesRetry is the period of retries until the first list succeeds. Gates wait for
	// it for at most rulesMaxWait: they must work even if the other controller's resource
	// is broken.
	rulesRetry   = time.Second
	rulesMaxWait = 30 * time.Second
)

// readinessRules determines which keys rules manage. If they cannot be listed, the
// previous result is kept. If the resource does not exist, there are none.
type readinessRules struct {
	client client.WithWatch
	clock  clock.Clock
	log    logr.Logger
	// changed signals that a rule may have been created, changed or deleted.
	changed chan struct{}
	byKey   map[string]string
	failed  bool
	// began is the time of the first attempt to list rules.
	began time.Time
}

func newReadinessRules(api client.WithWatch, c clock.Clock, log logr.Logger) *readinessRules {
	return &readinessRules{client: api, clock: c, log: log, changed: make(chan struct{}, 1)}
}

// managed lists the rules, and returns their names by the key that they manage. It
// returns false while it is still unknown whether there are any.
func (r *readinessRules) managed(ctx context.Context) (map[string]string, bool) {
	if r.began.IsZero() {
		r.began = r.clock.Now()
	}
	r.list(ctx)
	return r.byKey, r.byKey != nil || r.clock.Since(r.began) >= rulesMaxWait
}

func (r *readinessRules) list(ctx context.Context) {
	stopping := ctx
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(readinessRuleList)
	err := client.IgnoreNotFound(r.client.List(ctx, &list))
	switch {
	case err != nil:
		if !r.failed && stopping.Err() == nil {
			r.log.Error(err, "cannot list NodeReadinessRules, retrying")
		}
	default:
		r.byKey = make(map[string]string, len(list.Items))
		for i := range list.Items {
			key, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "taint", "key")
			r.byKey[key] = list.Items[i].GetName()
		}
	}
	r.failed = err != nil
}
