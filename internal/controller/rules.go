// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NodeReadinessRules of kubernetes-sigs/node-readiness-controller manage taint
// keys too. Two controllers that manage one key would fight over it on every
// node, so such a gate is not accepted.

var readinessRuleList = schema.GroupVersionKind{
	Group: "readiness.node.x-k8s.io", Version: "v1alpha1", Kind: "NodeReadinessRuleList",
}

const (
	// rulesInterval is how often rules are looked at while no gate changes.
	rulesInterval = time.Minute
	rulesTimeout  = 5 * time.Second
)

// readinessRules knows which keys rules manage. Where they cannot be listed,
// what was known last stands; where the kind does not exist, there are none.
type readinessRules struct {
	client client.Reader
	log    logr.Logger
	byKey  map[string]string
	failed bool
}

func newReadinessRules(reader client.Reader, log logr.Logger) *readinessRules {
	return &readinessRules{client: reader, log: log}
}

// managed lists the rules, and returns their names, by the key that they manage.
func (r *readinessRules) managed(ctx context.Context) map[string]string {
	stopping := ctx
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(readinessRuleList)
	err := r.client.List(ctx, &list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		err = nil
	}
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
	return r.byKey
}
