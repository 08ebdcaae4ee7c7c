// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// newEvictionEnv returns an environment with the controllers that evict pods. No node becomes
// unreachable, although the simulated kubelets send no heartbeats.
func newEvictionEnv(t *testing.T) *schedulingEnv {
	t.Helper()
	w := &schedulingEnv{env: newControllersEnv(t, []testcluster.Component{testcluster.ControllerManager, testcluster.Scheduler},
		"--node-monitor-grace-period=1h", "--node-startup-grace-period=1h")}
	w.startKubelets()
	return w
}

// runs creates a pod on a node, and waits until it runs.
func (w *schedulingEnv) runs(name string, change ...podOption) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	for _, f := range change {
		f(pod)
	}
	w.eventually("a ServiceAccount for pods exists", func() error { return w.admin.Create(w.Context(), pod) })
	w.eventually("pod "+name+" runs", func() error {
		if err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		return unless(pod.Status.Phase == corev1.PodRunning)
	})
	return pod
}

func onNode(k *kubelet) podOption { return func(p *corev1.Pod) { p.Spec.NodeName = k.name } }

// toleratingFor adds a toleration of a taint key for some seconds.
func toleratingFor(key string, seconds int64) podOption {
	return func(p *corev1.Pod) {
		tolerating(key)(p)
		last := &p.Spec.Tolerations[len(p.Spec.Tolerations)-1]
		last.Effect, last.TolerationSeconds = corev1.TaintEffectNoExecute, &seconds
	}
}

// evicted waits until a pod is deleted, and returns who requested it first, and when.
func (w *schedulingEnv) evicted(pod *corev1.Pod) (user string, at time.Time) {
	w.Helper()
	w.eventually("pod "+pod.Name+" is evicted", func() error {
		for _, event := range w.audit() {
			if event.Verb == "delete" && event.ObjectRef.Resource == "pods" && event.ObjectRef.Name == pod.Name {
				user, at = event.User.Username, event.Received.Time
				return nil
			}
		}
		return errors.New("nobody has deleted it")
	})
	return user, at
}

// A gate with NoExecute closes on two nodes in use. The taint eviction controller evicts the pods
// that do not tolerate its taint immediately, those with tolerationSeconds after that time, and
// none of those if the gate opens before.
func TestTaintEviction(t *testing.T) {
	const seconds = 20
	w := newEvictionEnv(t)
	w.startController(0)
	ng := onRegression(newGate("evict", keyA, byLabel("ready")))
	ng.Spec.Taint.Effect = corev1.TaintEffectNoExecute
	ng.Spec.Acknowledge = []v1alpha1.Acknowledgement{v1alpha1.AcknowledgePodEviction}
	ng.Spec.Budget.MaxReclosed = new(intstr.FromString("100%"))
	w.declare(ng)
	opens, stays := w.schedulableNode("opens"), w.schedulableNode("stays")
	for _, k := range []*kubelet{opens, stays} {
		k.label("ready")
		k.becomes("evict", isOpen, keyA)
	}
	saved := w.runs("saved", onNode(opens), toleratingFor(keyA, seconds))
	plain := w.runs("plain", onNode(stays))
	limited := w.runs("limited", onNode(stays), toleratingFor(keyA, seconds))
	unlimited := w.runs("unlimited", onNode(stays), tolerating(keyA))

	opens.unlabel("ready")
	opens.becomes("evict", isClosed, keyA)
	opens.label("ready") // long before the time of the pod saved is over
	opens.becomes("evict", isOpen, keyA)
	stays.unlabel("ready")
	stays.becomes("evict", isClosed, keyA)
	closed := timeAdded(stays.node(), keyA)
	user, first := w.evicted(plain)
	// The time of the pod saved would have been over before, because its node was closed first.
	_, last := w.evicted(limited)
	if last.Before(closed.Add(seconds*time.Second)) || !first.Before(last) {
		t.Errorf("the gate closed at %s; the pods were evicted at %s, and with tolerationSeconds: %d at %s", closed, first, seconds, last)
	}
	for _, pod := range []*corev1.Pod{saved, unlimited} {
		if w.isTerminating(pod) {
			t.Errorf("pod %s was evicted", pod.Name)
		}
	}
	if user == installationUser {
		t.Errorf("nodegate evicted pod %s", plain.Name)
	}
	t.Logf("%s evicted the pods %s and %s after the gate had closed", user, first.Sub(closed), last.Sub(closed))
}

// timeAdded returns when the NoExecute taint with this key was added.
func timeAdded(n *corev1.Node, key string) time.Time {
	for _, taint := range n.Spec.Taints {
		if taint.Key == key && taint.TimeAdded != nil {
			return taint.TimeAdded.Time
		}
	}
	return time.Time{}
}

// A device is tainted with NoExecute, by a DeviceTaintRule and then by its driver. The device
// taint eviction controller evicts the pod that uses the device. The device is still published, so
// the gate that waits for its ResourceSlices stays open, and other pods stay on the node.
func TestDeviceTaintEviction(t *testing.T) {
	clustertest.SkipBefore(t, "1.37", "DeviceTaintRules of resource.k8s.io/v1")
	w := newEvictionEnv(t)
	w.startController(0)
	w.declare(onRegression(newGate("dra", keyA, v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver}})))
	k := w.schedulableNode("n1")
	slice := k.publishes("gpu-0", 1, 1)
	k.becomes("dra", isOpen, keyA)
	w.claimDevice("gpu")
	user, bystander := w.runs("user", claiming("gpu")), w.runs("bystander", onNode(k))

	taint := resourcev1.DeviceTaint{Key: "example.com/unhealthy", Effect: resourcev1.DeviceTaintEffectNoExecute}
	rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "unhealthy"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new(draDriver), Pool: &k.name}, Taint: taint,
	}}
	w.must(w.admin.Create(t.Context(), rule))
	by, _ := w.evicted(user)
	t.Logf("%s evicted the pod that uses the device", by)
	stays := func() {
		t.Helper()
		k.settled()
		k.must(k.is("dra", isOpen, keyA))
		k.wrote(1)
		if w.isTerminating(bystander) {
			t.Error("the pod that does not use the device was evicted")
		}
	}
	stays()

	w.must(w.admin.Delete(t.Context(), rule))
	again := w.runs("again", claiming("gpu"))
	slice.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{taint}
	w.must(k.api.Update(t.Context(), slice))
	w.evicted(again)
	stays()

	// The gate still depends on the device: it closes when the driver no longer publishes it.
	w.must(k.api.Delete(t.Context(), slice))
	k.becomes("dra", isClosed, keyA)
}

// claimDevice creates a ResourceClaim for any device of the tests' DRA driver.
func (w *schedulingEnv) claimDevice(name string) {
	w.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + draDriver + `"`}}},
	}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: name}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: name}}}
	w.must(w.admin.Create(w.Context(), class))
	w.must(w.admin.Create(w.Context(), claim))
}

// claiming makes the pod use a ResourceClaim.
func claiming(name string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: name, ResourceClaimName: &name}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: name}}
	}
}
