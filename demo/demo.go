// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
)

const (
	podsPerNode = 2 // as many web pods as fit on one node

	viewEvery = 200 * time.Millisecond
	// steadyFor is the minimum duration for which the steady state is observed.
	steadyFor = heartbeatEvery + 1500*time.Millisecond
)

// errVerdict is returned when the demo has completed and the verdict is FAIL.
var errVerdict = errors.New("the verdict is FAIL")

// A demo is one run.
type demo struct {
	*options
	gates      []gate
	plans      []nodePlan
	cluster    *testcluster.Cluster
	admin      kubernetes.Interface
	applier    *testbed.Applier
	nodegate   *testbed.Installation
	controller *testbed.Controller
	fleet      *fleet
}

// demonstrate runs the demo and stops everything that it started; with --keep,
// not until ctx ends.
func demonstrate(ctx context.Context, o *options) (err error) {
	d := &demo{options: o, plans: planNodes(o.nodes)}
	if d.gates, err = demoGates(); err != nil {
		return err
	}
	// No KWOK: the demo simulates the kubelets itself, with a precision of
	// milliseconds.
	clusterOptions := recording.ClusterOptions(os.Stderr, testcluster.Scheduler, testcluster.Controllers)
	// Everything is built before anything runs, so that nothing waits for a
	// compiler.
	if _, err := testcluster.Build(ctx, clusterOptions); err != nil {
		return ended(ctx, err)
	}
	dir, err := os.MkdirTemp("", "nodegate-demo-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	if d.program == "" {
		printf("building nodegate")
		if d.program, err = testbed.BuildProgram(ctx, dir); err != nil {
			return ended(ctx, err)
		}
	}
	if d.cluster, err = testcluster.Start(ctx, clusterOptions); err != nil {
		return ended(ctx, err)
	}
	defer func() { err = errors.Join(err, d.cluster.Stop()) }()
	return d.live(ctx)
}

// ended returns the cause of ctx's end, if it has ended, followed by the error
// that resulted from it.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// live is the part of the demo in the running cluster.
func (d *demo) live(interrupted context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(interrupted)
	defer func() { err = errors.Join(err, d.stop(cancel)) }()
	go func() {
		select {
		case <-ctx.Done():
		case <-d.cluster.Done():
			cancel(d.cluster.Err())
		}
	}()
	if err := d.setUp(ctx, cancel); err != nil {
		return ended(ctx, err)
	}
	result, err := d.perform(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	if d.keep {
		d.printUsage()
		<-ctx.Done()
		if interrupted.Err() == nil {
			return context.Cause(ctx)
		}
	}
	if !result.pass() {
		return errVerdict
	}
	return nil
}

// stop ends everything that runs in the cluster, in order.
func (d *demo) stop(cancel context.CancelCauseFunc) error {
	cancel(nil)
	if d.fleet != nil {
		d.fleet.running.Wait()
	}
	if d.controller != nil {
		return d.controller.Stop()
	}
	return nil
}

// setUp installs nodegate, creates the gates and their daemons, and returns when
// new nodes are closed at birth. Everything that it starts runs until ctx ends.
func (d *demo) setUp(ctx context.Context, cancel context.CancelCauseFunc) error {
	var err error
	if d.admin, err = kubernetes.NewForConfig(d.cluster.Admin()); err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	if d.applier, err = testbed.NewApplier(d.cluster.Admin()); err != nil {
		return err
	}
	printf("installing nodegate: CRD, ServiceAccount, RBAC, admission policies")
	var allowed []string
	for _, g := range d.gates {
		allowed = append(allowed, g.taint.Key)
	}
	if d.nodegate, err = testbed.Install(ctx, d.applier, d.program, allowed); err != nil {
		return err
	}
	printf("starting nodegate's controller as %s", d.nodegate.Username())
	if d.controller, err = testbed.StartController(ctx, d.cluster, d.nodegate); err != nil {
		return err
	}
	go func() {
		<-d.controller.Done()
		cancel(d.controller.ExitError()) // without effect if the end is wanted
	}()
	if err := d.controller.AwaitReady(ctx); err != nil {
		return err
	}
	if err := d.declare(ctx); err != nil {
		return err
	}
	if err := d.awaitGates(ctx); err != nil {
		return err
	}
	printf("both gates are ready: the API server closes new nodes (seen in a dry run)")
	d.fleet, err = newFleet(ctx, d.cluster, d.plans)
	return err
}

// declare applies the daemons, the gates for them, and the workload.
func (d *demo) declare(ctx context.Context) error {
	for _, stream := range [][]byte{daemonsYAML, gatesYAML, webYAML} {
		objects, err := testbed.ParseObjects(stream)
		if err != nil {
			return fmt.Errorf("reading the demo's objects: %w", err)
		}
		for _, object := range objects {
			if object.GetKind() != "Deployment" {
				continue
			}
			replicas := int64(podsPerNode * len(d.plans))
			if err := unstructured.SetNestedField(object.Object, replicas, "spec", "replicas"); err != nil {
				return fmt.Errorf("reading the demo's objects: %w", err)
			}
			printf("creating Deployment default/web: %d pods that wait for nodes", replicas)
		}
		if err := d.applier.Apply(ctx, objects...); err != nil {
			return err
		}
	}
	return nil
}

// awaitGates waits until the gates' condition Ready is True, and then verifies
// that new nodes are closed at birth.
func (d *demo) awaitGates(ctx context.Context) error {
	var taints []corev1.Taint
	for _, g := range d.gates {
		if err := testbed.AwaitGate(ctx, d.applier, g.name); err != nil {
			return err
		}
		taints = append(taints, g.taint)
	}
	return testbed.AwaitBirthClosed(ctx, d.cluster, taints...)
}

// perform scales out, waits for the final state, and computes the verdict.
func (d *demo) perform(ctx context.Context) (*summary, error) {
	printf("scaling out: %d nodes in %d waves\n", len(d.plans), waveCount)
	if err := d.scaleOut(ctx); err != nil {
		return nil, err
	}
	fmt.Println()
	if err := d.awaitStatus(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		printf("note: %v", err)
	}
	steady, err := d.steady(ctx)
	if err != nil {
		return nil, err
	}
	result, err := d.judge(ctx, steady)
	if err != nil {
		return nil, err
	}
	fmt.Println()
	result.write(os.Stdout)
	return result, explainHeld(ctx, os.Stdout, d.admin, d.applier, result.held)
}

// scaleOut shows the new nodes until they have reached their final state, or
// until nothing changes any more. In the latter case, the verdict reports what is
// missing.
func (d *demo) scaleOut(ctx context.Context) error {
	d.fleet.running.Go(func() { d.fleet.scaleOut(ctx) })
	view := newView(os.Stdout, d.plain)
	changing, progress, stop := await.Watch(ctx, await.Silence)
	defer stop()
	var last snapshot
	for began, wanted := time.Now(), podsPerNode*len(d.plans); ; {
		s := d.fleet.snapshot(d.gates, wanted, began)
		settled := d.settled(&s)
		view.show(&s, settled)
		if settled {
			return nil
		}
		if s.waves != last.waves {
			progress()
		}
		last = s
		if err := await.Pause(changing, viewEvery); ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), d.fleet.lastError())
		} else if err != nil {
			return nil //nolint:nilerr // nothing has changed for a while
		}
	}
}

// stuck counts the nodes that never open.
func (d *demo) stuck() int {
	count := 0
	for i := range d.plans {
		if d.plans[i].stuck {
			count++
		}
	}
	return count
}

func (d *demo) settled(s *snapshot) bool {
	t := s.total()
	toOpen := len(d.plans) - d.stuck()
	return t.states[open] == toOpen && t.nodes() == len(d.plans) && t.pods == podsPerNode*toOpen
}

// awaitStatus waits until the gates' status has the final counts, after which
// nodegate has nothing left to write.
func (d *demo) awaitStatus(ctx context.Context) error {
	return await.Until(ctx, "the gates' status", func(ctx context.Context) error {
		closed := 0
		for _, g := range d.gates {
			ng, err := testbed.GetGate(ctx, d.applier, g.name)
			if err != nil {
				return err
			}
			n := ng.Status.Nodes
			if int(n.Open+n.Closed) != len(d.plans) {
				return fmt.Errorf("gate %s counts %d nodes open and %d closed", g.name, n.Open, n.Closed)
			}
			closed += int(n.Closed)
		}
		if closed != d.stuck() {
			return fmt.Errorf("the gates count %d nodes closed", closed)
		}
		return nil
	})
}

// steady waits while nothing changes and every node reports.
func (d *demo) steady(ctx context.Context) (period, error) {
	printf("watching at least %s of steady state, until every node has reported", steadyFor)
	from := time.Now()
	if err := await.Pause(ctx, steadyFor); err != nil {
		return period{}, err
	}
	err := await.Until(ctx, "every node to report", func(context.Context) error { return d.fleet.reportedSince(from) })
	return period{from: from, to: time.Now()}, err
}

// judge computes the verdict on the run from etcd and the audit log.
func (d *demo) judge(ctx context.Context, steady period) (_ *summary, err error) {
	etcd, err := recording.Connect(d.cluster)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	history, err := recording.Read(ctx, etcd, d.cluster.AuditLog(), recording.Position{})
	if err != nil {
		return nil, err
	}
	e := &expectation{
		nodegate: d.nodegate.Username(), gates: d.gates, nodes: len(d.plans),
		workload: podsPerNode * (len(d.plans) - d.stuck()),
	}
	s := summarize(history, e)
	s.addRules(judge.Judge(history, judge.Config{
		Controller: e.nodegate, Lag: 30 * time.Second, Quiet: time.Second, TransientTaints: []string{setUpTaint.Key},
	}))
	return s, s.addSteady(d.cluster.AuditLog(), e, steady)
}

// printUsage prints what to do with a cluster that is kept.
func (d *demo) printUsage() {
	stuck := d.plans[slices.IndexFunc(d.plans, func(p nodePlan) bool { return p.stuck })].name
	fmt.Printf(`
Everything is still running. In another terminal:

  export KUBECONFIG=%s
  kubectl get nodegates
  kubectl describe nodegate cni
  kubectl get node %[2]s -o yaml          # its taint, and nodegate's record

  kubectl -n %[7]s create serviceaccount reader
  kubectl create clusterrolebinding reader --clusterrole=nodegate-metrics-reader --serviceaccount=%[7]s:reader
  curl -sk -H "Authorization: Bearer $(kubectl -n %[7]s create token reader)" https://%[3]s/metrics | grep ^nodegate

Let the stuck daemon become ready, and watch its node open:

  kubectl -n kube-system annotate pod -l app=demo-cni --field-selector spec.nodeName=%[2]s %[4]s=now
  kubectl get node %[2]s -o jsonpath='{.spec.taints}'

nodegate's log:  %[5]s
Audit log:       %[6]s
Press Ctrl-C to end everything.
`, d.cluster.Kubeconfig(), stuck, d.controller.Metrics, healAnnotation,
		filepath.Clean(d.controller.LogFile), d.cluster.AuditLog(), d.nodegate.ServiceAccount.Namespace)
}

func printf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
