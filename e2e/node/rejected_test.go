// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/machine"
)

// After a power cut, the kubelet rejects pods that have a device, because the device plugin has not
// registered yet (kubernetes#128043). They never run again, and the Event about the opening names
// them. They still exist in the next boot, and are not named again, although its kubelet writes their
// status once more.
func TestRejectedPods(t *testing.T) {
	h := newHostWith(t, map[string]string{registersLabel: "device"})
	h.setReady(t, true)
	must(t, h.PowerOn())
	h.registersTwo(t)
	h.await(t, false)
	h.bindTraining(t, "train")
	h.bindTraining(t, "train-again")
	h.awaitPhase(t, "train", corev1.PodRunning)
	h.awaitPhase(t, "train-again", corev1.PodRunning)

	note := h.rebootRejecting(t, "train", "train-again")
	// Both gates of the node were closed, and each reports the pods.
	const want = "the kubelet rejected 2 pods while gate device was closed, and no controller replaces them: " +
		"node-test/train (UnexpectedAdmissionError), node-test/train-again (UnexpectedAdmissionError)"
	if note != want {
		t.Errorf("the note is\n%s\nwant\n%s", note, want)
	}
	if !*long {
		return
	}
	h.bindTraining(t, "next")
	h.awaitPhase(t, "next", corev1.PodRunning)
	must(t, await.Pause(t.Context(), 70*time.Second)) // the last minute before a new boot is possible
	const wantNext = "the kubelet rejected 1 pod while gate device was closed, and no controller replaces it: node-test/next (UnexpectedAdmissionError)"
	if note := h.rebootRejecting(t, "next"); note != wantNext {
		t.Errorf("the note is\n%s\nwant\n%s", note, wantNext)
	}
}

// rebootRejecting reboots the machine, waits until the kubelet has rejected pods, and registers the
// device plugin, which opens the gate. It returns the note of the Event about rejected pods.
func (h *host) rebootRejecting(t *testing.T, names ...string) string {
	t.Helper()
	must(t, h.PowerOff())
	off := time.Now()
	must(t, h.PowerOn())
	h.await(t, true)
	for _, name := range names {
		pod := h.awaitPhase(t, name, corev1.PodFailed)
		if pod.Status.Reason != "UnexpectedAdmissionError" || pod.Status.StartTime.After(off) {
			t.Errorf("the kubelet rejected the pod with the status %+v", pod.Status)
		}
	}
	h.registersTwo(t)
	h.await(t, false)
	return h.awaitEvent(t, v1alpha1.EventRejectedPods, "device", off).Note
}

// registersTwo registers a device plugin with two devices.
func (h *host) registersTwo(t *testing.T) {
	t.Helper()
	h.await(t, true)
	h.awaitAgent(t, true)
	plugin := &devicePlugin{healthy: make(chan int, 1)}
	plugin.healthy <- 2
	h.serve(t, "device-plugins/test.sock", func(s *grpc.Server) { v1beta1.RegisterDevicePluginServer(s, plugin) })
	h.registerDevices(t)
	h.awaitDevices(t, 2)
}

// bindTraining binds a pod to the machine that has a device and no controller.
func (h *host) bindTraining(t *testing.T, name string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec = corev1.PodSpec{
		NodeName: h.name, TerminationGracePeriodSeconds: new(int64),
		Containers: []corev1.Container{{
			Name: "train", Image: machine.ImageName, ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{deviceName: resource.MustParse("1")}},
		}},
	}
	must(t, shared.client.Create(t.Context(), p))
}

// awaitPhase waits until a pod has a phase, and returns it.
func (h *host) awaitPhase(t *testing.T, name string, phase corev1.PodPhase) (pod *corev1.Pod) {
	t.Helper()
	pod = &corev1.Pod{}
	must(t, await.Until(t.Context(), fmt.Sprintf("phase %s of pod %s", phase, name), func(ctx context.Context) error {
		if err := shared.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
			return err
		}
		if pod.Status.Phase != phase {
			return fmt.Errorf("it is %s: %s", pod.Status.Phase, pod.Status.Message)
		}
		return nil
	}))
	return pod
}
