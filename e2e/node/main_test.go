// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
	"github.com/nodegate/nodegate/testcluster/components"
	"github.com/nodegate/nodegate/testcluster/machine"
)

var (
	reboots = flag.Int("reboots", 3, "the number of reboots of each test of quick reboots")
	long    = flag.Bool("long", false, "also run the tests that wait until the control plane notices that a node is unreachable")
)

func TestMain(m *testing.M) {
	machine.Init()
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, recording.ClusterOptions(os.Stderr, testcluster.APIServer, testcluster.Scheduler, testcluster.ControllerManager))
}

// shared is what all tests use.
var shared struct {
	once         sync.Once
	err          error
	programs     map[components.Component]string
	image        string
	client       client.Client
	installation *testbed.Installation
	// leader is nodegate's controller. Tests may end it, and start another one.
	leader   *testbed.Controller
	machines int
}

// setUp starts the cluster, nodegate and the daemon, once. It skips the test if no machine
// can run here.
func setUp(t *testing.T) *testcluster.Cluster {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	if err := machine.Unsupported(); err != nil {
		t.Skipf("a machine cannot run here: %v", err)
	}
	c := clustertest.Shared(t)
	shared.once.Do(func() { shared.err = prepare(c) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return c
}

func prepare(c *testcluster.Cluster) (err error) {
	ctx := context.Background() // what is started is used by all tests
	if shared.programs, err = machine.Programs(ctx, os.Stderr); err != nil {
		return err
	}
	shared.image = filepath.Join(c.Dir(), "image.tar")
	if err := buildImage(ctx, shared.image); err != nil {
		return err
	}
	program, err := testbed.BuildProgram(ctx, c.Dir())
	if err != nil {
		return err
	}
	if shared.client, err = testbed.NewClient(c.Admin()); err != nil {
		return err
	}
	applier, err := testbed.NewApplier(c.Admin())
	if err != nil {
		return err
	}
	if shared.installation, err = testbed.Install(ctx, applier, program, []string{taint.Key, taint.Key + ":NoExecute"}); err != nil {
		return err
	}
	objects, err := testbed.ParseObjects([]byte(agentGate + daemon + gates() + workload("workload", 5, "") + workload("patient", 2, awaitAgent)))
	if err != nil {
		return err
	}
	if shared.leader, err = startReplica(ctx, c, "first"); err != nil {
		return err
	}
	if err := shared.leader.AwaitReady(ctx); err != nil {
		return err
	}
	if err := applier.Apply(ctx, objects...); err != nil {
		return err
	}
	if err := testbed.AwaitGate(ctx, applier, gateName); err != nil {
		return err
	}
	return testbed.AwaitBirthClosed(ctx, c, taint)
}

func buildImage(ctx context.Context, file string) error {
	if err := testbed.DependOnSources(ctx, agentPackage, holdPackage); err != nil {
		return err
	}
	return machine.BuildImage(ctx, file, agentPackage, holdPackage)
}

func startReplica(ctx context.Context, c *testcluster.Cluster, identity string) (*testbed.Controller, error) {
	return testbed.StartController(ctx, c, shared.installation, "--leader-elect-identity="+identity)
}

const (
	gateName  = "agent"
	namespace = "node-test"
)

// taint is the gate's taint.
var taint = corev1.Taint{Key: "test.nodegate.dev/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}

// lag is longer than a delay of a busy machine, for the judge.
const lag = 30 * time.Second

// evictLabel is the label of the nodes that gate agent-evict selects.
const evictLabel = "test.nodegate.dev/evict"

// gates returns gates for the nodes that have a label with a value. Like gate agent, they have
// the taint of the tests, so that a node is open when all of its gates are.
func gates() string {
	const daemonReady = "{name: agent, daemonSet: {namespace: node-test, name: agent}}"
	evict := "recloseTaint: {key: test.nodegate.dev/agent-not-ready, effect: NoExecute}\n  acknowledge: [PodEviction]"
	return labelledGate("agent-evict", evictLabel, "true", daemonReady, evict) +
		labelledGate("agent-hold", holdLabel, "long", daemonReady, "bypassedPods: Hold") +
		labelledGate("agent-hold-briefly", holdLabel, "briefly", daemonReady, fmt.Sprintf("bypassedPods: Hold\n  holdSeconds: %d", briefly)) +
		labelledGate("device", registersLabel, "device", "{name: devices, resource: {name: "+deviceName+", atLeast: 2}}", "bypassedPods: Report") +
		labelledGate("driver", registersLabel, "driver", "{name: driver, csiDriver: {name: "+driverName+", allocatable: true}}", "") +
		labelledGate("dra", registersLabel, "dra", daemonReady+", {name: devices, resourceSlices: {driver: "+draName+"}}", "")
}

// labelledGate returns a gate that waits for signals. more is YAML of further fields.
func labelledGate(name, label, value, signals, more string) string {
	return fmt.Sprintf(`
---
apiVersion: nodegate.dev/v1alpha1
kind: NodeGate
metadata: {name: %s}
spec:
  nodeSelector: {matchLabels: {%s: %q}}
  taint: {key: test.nodegate.dev/agent-not-ready, effect: NoSchedule}
  openWhen: [%s]
  %s
`, name, label, value, signals, more)
}

// Gate agent opens when the daemon is ready on the node.
const agentGate = `
---
apiVersion: nodegate.dev/v1alpha1
kind: NodeGate
metadata: {name: agent}
spec:
  nodeSelector: {}
  taint: {key: test.nodegate.dev/agent-not-ready, effect: NoSchedule}
  openWhen:
  - name: agent
    daemonSet: {namespace: node-test, name: agent}
  bypassedPods: Report
`

// On a machine, the daemon is ready while /shared/ready exists. Its containers and those of the
// workloads, which do not tolerate the gate's taint, write when they start. The workload patient
// waits for the daemon in an init container.
const daemon = `
---
apiVersion: v1
kind: Namespace
metadata: {name: node-test}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: node-test}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 1
      containers:
      - name: agent
        image: nodegate.test/pod:1
        imagePullPolicy: Never
        args: [run, /shared/starts, agent]
        readinessProbe: {exec: {command: [/pod, exists, /shared/ready]}, periodSeconds: 1}
        volumeMounts: [{name: shared, mountPath: /shared}]
      volumes: [{name: shared, hostPath: {path: /shared}}]
`

// workload returns a Deployment. init is YAML of its init containers.
func workload(name string, replicas int, init string) string {
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: node-test}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      initContainers: [%[3]s]
      containers:
      - name: %[1]s
        image: nodegate.test/pod:1
        imagePullPolicy: Never
        args: [run, /shared/starts, $(POD)]
        env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        volumeMounts: [{name: shared, mountPath: /shared}]
      volumes: [{name: shared, hostPath: {path: /shared}}]
`, name, replicas, init)
}

// awaitAgent is an init container that waits for the daemon.
const awaitAgent = `{name: await-agent, image: "nodegate.test/pod:1", imagePullPolicy: Never, args: [await, /shared/ready], volumeMounts: [{name: shared, mountPath: /shared}]}`
