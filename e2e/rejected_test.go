// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/testcluster/await"
)

// Pods that a kubelet rejects after a reboot, because what the gate waits for is not there yet.
// internal/gate/rejection.go describes them, and TestRejectedPods in e2e/node shows that a real
// kubelet does this.

// rejects reports that the kubelet has rejected a pod: as a kubelet does, without the conditions
// that kubelets own and without container statuses.
func (k *kubelet) rejects(pod *corev1.Pod, reason string) {
	k.Helper()
	k.must(k.api.Status().Patch(k.Context(), pod, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
		`{"status":{"phase":"Failed","reason":%q,"message":"Pod was rejected: by the test","containerStatuses":null,"conditions":null}}`, reason))))
}

// Pods that were bound before a reboot and rejected after it are reported, and stay as they are.
// Those that were rejected for a reason that has nothing to do with the gate are not reported, and
// none is reported again when the gate has closed and opened once more.
func TestRejectedPodsAreReported(t *testing.T) {
	e := newEnv(t)
	e.allowEvictions()
	registry := prometheus.NewRegistry()
	e.runController(func(p *controller.Process) { p.Registerer = registry })
	ds := e.daemonSet("agent")
	ng := bypassGate(v1alpha1.BypassedEvict)
	ng.Spec.ReclosePolicy, ng.Spec.Timing.CloseAfterSeconds = v1alpha1.RecloseOnRegression, new(int32(0))
	e.declare(ng)
	k := e.kubelet("n1")
	k.register()
	agent := k.daemonPod(ds)
	k.run(agent, true)
	k.becomes("agent", isOpen, keyA)
	const unexpected = "UnexpectedAdmissionError"
	yesterday := time.Now().Add(-24 * time.Hour)
	pods := map[string]*corev1.Pod{
		"train": k.bind("train", yesterday), "web": k.bind("web", yesterday, ownedBy("ReplicaSet")), "early": k.bind("early", yesterday),
		"other-cause": k.bind("other-cause", yesterday), "tolerant": k.bind("tolerant", yesterday, tolerating(keyA)),
	}
	// A kubelet may reject a pod before it reports its new boot. Times are in seconds.
	k.rejects(pods["early"], unexpected)
	e.must(await.Pause(t.Context(), 2*time.Second))
	k.reboot()
	k.becomes("agent", isClosed, keyA)
	k.rejects(pods["train"], unexpected)
	k.rejects(pods["web"], "OutOfnvidia.com/gpu")
	k.rejects(pods["other-cause"], "NodeAffinity")
	k.rejects(pods["tolerant"], unexpected)
	k.opensLater(agent)
	const want = "the kubelet rejected 1 pod while gate agent was closed, and no controller replaces it: daemons/train (UnexpectedAdmissionError); " +
		"the kubelet rejected 1 pod at about the time at which gate agent closed or opened, and no controller replaces it: daemons/early (UnexpectedAdmissionError); " +
		"the kubelet rejected 1 pod while gate agent was closed, and its controller may replace it: daemons/web (OutOfnvidia.com/gpu)"
	if event := k.onlyEvent(v1alpha1.EventRejectedPods); event.Note != want || event.Type != corev1.EventTypeWarning || event.Action != v1alpha1.EventActionReport {
		t.Errorf("the Event is %+v, want a Warning with the note\n%s", event, want)
	}
	e.shows(registry, "nodegate_rejected_pods_total", 3)

	// The gate closes and opens again. A pod that starts meanwhile shows when pods have been
	// searched for.
	k.setReady(agent, false, "")
	k.becomes("agent", isClosed, keyA)
	k.bind("bypassing", k.record("agent").Since.Add(time.Second))
	k.opensLater(agent)
	k.bypassEvent()
	e.settled()
	k.onlyEvent(v1alpha1.EventRejectedPods)
	e.shows(registry, "nodegate_rejected_pods_total", 3)
	for name, pod := range pods {
		if e.isTerminating(pod) || e.evictionsOf(name, 0) == nil {
			t.Errorf("pod %s was deleted or evicted", name)
		}
	}
}

// opensLater opens gate agent after a few seconds. What happens just before an opening is not
// certain.
func (k *kubelet) opensLater(agent *corev1.Pod) {
	k.Helper()
	k.must(await.Pause(k.Context(), 4*time.Second))
	k.run(agent, true)
	k.becomes("agent", isOpen, keyA)
}
