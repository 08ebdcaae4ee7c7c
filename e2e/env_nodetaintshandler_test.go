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

// Annotations that nodetaintshandler reads and writes.
const (
	readyKey = "startup.k8s.io/ready"
	stampKey = "startup.k8s.io/completedAt"
)

// initPods returns a signal that waits for the pods of an init DaemonSet.
func initPods(app string, by v1alpha1.ReadyBy) v1alpha1.SignalSource {
	spec := &v1alpha1.PodsSignal{
		Namespace: daemonNamespace, Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": app}}, ReadyBy: by,
	}
	if by == v1alpha1.ReadyByAnnotation || by == v1alpha1.ReadyByEither {
		spec.ReadyAnnotation = readyKey
	}
	return v1alpha1.SignalSource{Pods: spec}
}

// annotate adds or removes the annotation that makes the pod ready.
func (k *kubelet) annotate(pod *corev1.Pod, ready bool) {
	k.Helper()
	value := "null"
	if ready {
		value = `"true"`
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, readyKey, value)
	k.must(k.admin.Patch(k.Context(), pod, client.RawPatch(types.MergePatchType, []byte(patch))))
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

// lines returns the parsed lines of the log that have this message.
func (w *observedController) lines(e *env, message string) []map[string]any {
	e.Helper()
	w.mu.Lock()
	text := w.log.String()
	w.mu.Unlock()
	var found []map[string]any
	for line := range strings.Lines(text) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			e.Fatalf("line of the log is not JSON: %s", line)
		}
		if fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}
