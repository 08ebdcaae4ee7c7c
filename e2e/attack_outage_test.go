// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster"
)

// Thirty nodes join and their daemons come up while the API server is killed
// three times, and etcd once. Every node is closed at creation, and opens once.
func TestNodesJoinThroughOutages(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	fleet := make([]*kubelet, 30)
	for i := range fleet {
		fleet[i] = e.kubelet(fmt.Sprintf("join-%02d", i))
	}

	var joined atomic.Int32 // the number of nodes whose daemon is ready
	var running sync.WaitGroup
	running.Go(func() {
		e.each(fleet, func(k *kubelet) {
			k.join(ds)
			joined.Add(1)
		})
	})
	for i, component := range []testcluster.Component{testcluster.APIServer, testcluster.Etcd, testcluster.APIServer, testcluster.APIServer} {
		e.eventually("some nodes have joined", func() error { return unless(joined.Load() >= int32(6*i+3)) })
		e.cluster.KillComponent(component)
		e.must(e.cluster.StartComponent(t.Context(), component))
		e.must(e.cluster.WaitReady(t.Context()))
	}
	running.Wait()
	for _, k := range fleet {
		k.becomes("agent", isOpen, keyA)
		// The log can lack requests that were in progress when the API server was killed.
		if writes := k.loggedWrites(); len(writes) > 1 {
			t.Errorf("nodegate wrote node %s %d times", k.name, len(writes))
		}
	}
}

// join performs all steps by which a node joins, and retries each until it succeeds.
func (k *kubelet) join(ds *appsv1.DaemonSet) {
	var node corev1.Node
	k.eventually("node "+k.name+" registers", func() error {
		err := k.api.Create(k.Context(), k.newNode())
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return k.admin.Get(k.Context(), client.ObjectKey{Name: k.name}, &node)
	})
	if !hasTaint(&node, keyA) {
		k.Errorf("node %s was created with taints %s, want %s", k.name, keys(&node), keyA)
	}
	pod := newDaemonPod(ds, k.name)
	pod.Name = ds.Name + "-" + k.name
	k.eventually("its daemon starts", func() error {
		err := k.admin.Create(k.Context(), pod.DeepCopy())
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return k.admin.Get(k.Context(), client.ObjectKeyFromObject(pod), pod)
	})
	k.eventually("its daemon is ready", func() error {
		if err := k.admin.Get(k.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		pod.Status = daemonStatus(true, "containerd://"+k.name)
		return k.admin.Status().Update(k.Context(), pod)
	})
}

// A controller is repeatedly killed by SIGKILL while nodes open one by one. Each node opens
// exactly once.
func TestControllerProcessIsKilledOverAndOver(t *testing.T) {
	e := newEnv(t)
	p := e.newControllerProcess()
	p.start()
	e.declare(newGate("agent", keyA, byLabel("ready")))
	fleet := make([]*kubelet, 12)
	for i := range fleet {
		fleet[i] = e.kubelet(fmt.Sprintf("n%02d", i))
		fleet[i].register()
	}
	openings := make(map[string]string)
	done := e.watchAll(func(n *corev1.Node) error {
		record := n.Annotations[v1alpha1.RecordAnnotationPrefix+"agent"]
		if before, opened := openings[n.Name]; opened && record != before {
			return fmt.Errorf("the gate's record was %s and is %s", before, record)
		}
		if r, err := gate.ParseRecord(record); err == nil && r.State == isOpen {
			openings[n.Name] = record // must not change any more
		}
		return agrees(n)
	})
	for len(fleet) > 0 {
		batch := fleet[:3]
		fleet = fleet[3:]
		for _, k := range batch {
			k.label("ready")
		}
		batch[0].becomes("agent", isOpen, keyA) // the others may be in progress
		p.kill()
		p.start()
		for _, k := range batch {
			k.becomes("agent", isOpen, keyA)
		}
	}
	done()
}

// controllerProcess runs nodegate as a separate process.
type controllerProcess struct {
	*env
	program, kubeconfig string
	command             *exec.Cmd
	output              bytes.Buffer
}

func (e *env) newControllerProcess() *controllerProcess {
	e.Helper()
	dir := e.TempDir()
	program, err := testbed.BuildProgram(e.Context(), dir)
	e.must(err)
	p := &controllerProcess{env: e, program: program, kubeconfig: filepath.Join(dir, "kubeconfig")}
	config, err := e.cluster.ServiceAccount(e.Context(), installation.Namespace, installation.ServiceAccount)
	e.must(err)
	e.must(testcluster.WriteKubeconfig(p.kubeconfig, config))
	e.Cleanup(func() {
		p.kill()
		if e.Failed() {
			e.Logf("nodegate's output:\n%s", &p.output)
		}
	})
	return p
}

func (p *controllerProcess) start() {
	p.Helper()
	p.command = exec.Command(p.program, "controller", "--kubeconfig", p.kubeconfig, "--leader-elect=false",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--allowed-taint-keys="+strings.Join(installation.AllowedTaintKeys, ","))
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	p.must(p.cluster.StartProcess(p.command))
}

// kill ends the process by SIGKILL.
func (p *controllerProcess) kill() {
	if p.command == nil {
		return
	}
	if err := p.command.Process.Kill(); err != nil {
		p.Errorf("killing nodegate: %v", err)
	}
	_ = p.command.Wait() // returns that it was killed
	p.command = nil
}
