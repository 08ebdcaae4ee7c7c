// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
)

// Names of nodetaintshandler's contract.
const (
	readyKey = "startup.k8s.io/ready"
	stampKey = "startup.k8s.io/completedAt"
)

// initPods is a signal on the pods of an init DaemonSet.
func initPods(app string, by v1alpha1.ReadyBy) v1alpha1.SignalSource {
	spec := &v1alpha1.PodsSignal{
		Namespace: daemonNamespace, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": app}}, ReadyBy: by,
	}
	if by == v1alpha1.ReadyByAnnotation || by == v1alpha1.ReadyByEither {
		spec.ReadyAnnotation = readyKey
	}
	return v1alpha1.SignalSource{Pods: spec}
}

// annotate sets the annotation that makes the pod ready, or takes it away.
func (k *kubelet) annotate(pod *corev1.Pod, ready bool) {
	k.Helper()
	value := "null"
	if ready {
		value = `"true"`
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, readyKey, value)
	k.must(k.admin.Patch(k.Context(), pod, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// registerWith registers a node that has a label.
func (e *env) registerWith(name, key, value string) (*kubelet, *corev1.Node) {
	e.Helper()
	k := e.kubelet(name)
	return k, k.register(func(n *corev1.Node) { n.Labels[key] = value })
}

// on is a gate that selects nodes by a label.
func on(ng *v1alpha1.NodeGate, key, value string) *v1alpha1.NodeGate {
	ng.Spec.NodeSelector.MatchLabels = map[string]string{key: value}
	return ng
}

// message returns the message of a gate's condition.
func (e *env) message(name, kind string) string {
	e.Helper()
	var ng v1alpha1.NodeGate
	e.must(e.admin.Get(e.Context(), client.ObjectKey{Name: name}, &ng))
	for _, c := range ng.Status.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

// observedController is a controller whose log and metrics can be read.
type observedController struct {
	mu       sync.Mutex
	log      bytes.Buffer
	registry *prometheus.Registry
}

// Write implements io.Writer.
func (w *observedController) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// startObserved starts a controller that logs as 'nodegate controller' does.
func (e *env) startObserved(change ...func(*controller.Process)) (w *observedController, stop func()) {
	e.Helper()
	w = &observedController{registry: prometheus.NewRegistry()}
	stop = e.runController(func(p *controller.Process) {
		p.Options.Log = zap.New(zap.WriteTo(w))
		p.Registerer = w.registry
		for _, f := range change {
			f(p)
		}
	})
	return w, stop
}

// lines returns the log's lines with this message, each as it was parsed.
func (w *observedController) lines(e *env, message string) []map[string]any {
	e.Helper()
	w.mu.Lock()
	text := w.log.String()
	w.mu.Unlock()
	var found []map[string]any
	for line := range strings.Lines(text) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			e.Fatalf("a line of the log is not JSON: %s", line)
		}
		if fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// waitingMessage returns the message for a node in a gate's status.
func (e *env) waitingMessage(gateName, node string) v1alpha1.WaitingNode {
	e.Helper()
	var ng v1alpha1.NodeGate
	e.must(e.admin.Get(e.Context(), client.ObjectKey{Name: gateName}, &ng))
	for _, w := range ng.Status.Waiting {
		if w.Node == node {
			return w
		}
	}
	return v1alpha1.WaitingNode{}
}
