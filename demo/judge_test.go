// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	e2ejudge "github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// The judge, which shares no code with nodegate, finds no fault in the demo either.
func TestDemoPassesTheJudge(t *testing.T) {
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	var verdict *e2ejudge.Verdict
	err := demonstrate(t.Context(), &options{nodes: 20, plain: true}, examination{
		apiServer: e2ejudge.Keep,
		examine: func(ctx context.Context, d *demo) (err error) {
			verdict, err = judged(ctx, d)
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := verdict.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	if len(verdict.Violations) > 0 {
		t.Error("nodegate broke a rule")
	}
	for _, rule := range []e2ejudge.Rule{e2ejudge.RuleOpening, e2ejudge.RuleForeign, e2ejudge.RuleBirth, e2ejudge.RuleQuiet} {
		if len(verdict.Checked[rule]) == 0 {
			t.Errorf("nothing was checked under %s", rule)
		}
	}
}

// judged passes the demo's etcd revisions and audit log to the judge.
func judged(ctx context.Context, d *demo) (_ *e2ejudge.Verdict, err error) {
	etcd, err := e2ejudge.Connect(d.cluster)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	log, err := os.Open(d.cluster.AuditLog())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	history, err := e2ejudge.Read(ctx, etcd, log, 1)
	if err != nil {
		return nil, err
	}
	return e2ejudge.Judge(history, e2ejudge.Config{
		Controller: d.nodegate.Username(), Lag: 30 * time.Second, Quiet: time.Second,
		TransientTaints: []string{setUpTaint.Key},
	}), nil
}
