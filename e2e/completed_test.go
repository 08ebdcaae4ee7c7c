// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

func byCompleted(app string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{Completed: &v1alpha1.CompletedSignal{
		Namespace: daemonNamespace, Selector: v1alpha1.EqualitySelector{MatchLabels: map[string]string{"app": app}},
	}}
}

// ends reports that the pod's container ran for a second and exited.
func (k *kubelet) ends(pod *corev1.Pod, ok bool) {
	k.Helper()
	k.must(k.endsIn(pod, ok))
}

func (e *env) endsIn(pod *corev1.Pod, ok bool) error {
	before := pod.DeepCopy()
	code := int32(0)
	if pod.Status.Phase = corev1.PodSucceeded; !ok {
		pod.Status.Phase, code = corev1.PodFailed, 1
	}
	now := metav1.Now()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: "app", ContainerID: "containerd://" + pod.Name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, StartedAt: metav1.NewTime(now.Add(-time.Second)), FinishedAt: now,
		}},
	}}
	return e.admin.Status().Patch(e.Context(), pod, client.MergeFrom(before))
}

func inBoot(id string) podOption {
	return func(p *corev1.Pod) { p.Labels[v1alpha1.BootLabel] = id }
}

// A failure is distinguished from a pod that has not finished. The gate opens when a pod has
// succeeded, with one write, and stays open when that pod is deleted, also while another
// replica leads. After a reboot, only a pod of the new boot opens it.
func TestCompletedSignal(t *testing.T) {
	e := newEnv(t)
	stop := e.startController(0)
	e.declare(checkedAndFit())
	k, _ := e.registerWith("n1", "fit", "")
	e.waitsFor("check", "n1", v1alpha1.ReadingPodMissing)
	k.ends(k.bind("check-0", time.Now(), labelled("check")), true)
	e.waitsFor("check", "n1", v1alpha1.ReadingStaleRun) // its label names no boot
	first := k.bind("check-1", time.Now(), labelled("check"), inBoot(k.boot))
	e.waitsFor("check", "n1", v1alpha1.ReadingPodNotCompleted)
	k.ends(first, false)
	e.waitsFor("check", "n1", v1alpha1.ReadingPodFailed)
	second := k.bind("check-2", time.Now(), labelled("check"), inBoot(k.boot))
	e.waitsFor("check", "n1", v1alpha1.ReadingPodNotCompleted)
	e.waitNextSecond() // statuses contain whole seconds
	k.ends(second, true)
	k.becomes("check", isOpen, keyA)
	k.wrote(1)
	unfit := e.checkedNode("unfit")

	e.must(e.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(daemonNamespace), client.GracePeriodSeconds(0)))
	e.settled()
	e.must(k.is("check", isOpen, keyA))
	stop()
	e.startReconciled(0, "check", 2)
	unfit.unlabel("fit")
	unfit.becomes("check", isClosed, keyA) // the budget is one node, and n1 would be first
	e.must(k.is("check", isOpen, keyA))
	k.wrote(1)
	e.must(e.admin.Delete(t.Context(), unfit.node()))

	k.bind("check-3", time.Now(), labelled("check"), inBoot(k.boot))
	k.reboot()
	k.becomes("check", isClosed, keyA)
	fourth := k.bind("check-4", time.Now(), labelled("check"), inBoot("another"))
	k.ends(fourth, true)
	e.settled()
	e.must(k.is("check", isClosed, keyA))
	fifth := k.bind("check-5", time.Now(), labelled("check"), inBoot(k.boot))
	k.ends(fifth, true)
	k.becomes("check", isOpen, keyA)
}

// checkedAndFit returns a gate that opens when a pod has succeeded on a node with the label
// "fit", and closes on one node at a time.
func checkedAndFit() *v1alpha1.NodeGate {
	ng := onRegression(newGate("check", keyA, byCompleted("check")))
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "fit", SignalSource: byLabel("fit")})
	ng.Spec.Budget.MaxReclosed = new(intstr.FromInt32(1))
	return ng
}

// checkedNode registers a node on which the gate of checkedAndFit is open.
func (e *env) checkedNode(name string) *kubelet {
	e.Helper()
	k, _ := e.registerWith(name, "fit", "")
	k.ends(k.bind("check-"+name, time.Now(), labelled("check"), inBoot(k.boot)), true)
	k.becomes("check", isOpen, keyA)
	return k
}

// The success of a pod is not lost when the pod is deleted while the gate waits for something
// else.
func TestCompletedBeforeOtherSignals(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ng := newGate("check", keyA, byCompleted("check"))
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "warm", SignalSource: byLabel("warm")})
	e.declare(ng)
	k := e.kubelet("n1")
	k.register()
	pod := k.bind("check-1", time.Now(), labelled("check"), inBoot(k.boot))
	k.ends(pod, true)
	k.eventually("the success is recorded", func() error { return unless(k.record("check").Completed != "") })
	e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	e.settled()
	k.patch(`{"metadata":{"labels":{"warm":""}}}`)
	k.becomes("check", isOpen, keyA)
	k.wrote(2)
}

// nodeChecks are the objects of the guide's launcher.
type nodeChecks struct {
	*schedulingEnv
	// dir contains the launcher's script, its Job, and a kubectl that uses its ServiceAccount.
	dir string
}

func newNodeChecks(w *schedulingEnv) *nodeChecks {
	w.Helper()
	page, err := os.ReadFile("../docs/guides/node-checks.md")
	w.must(err)
	c := &nodeChecks{w, w.TempDir()}
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for document := range strings.SplitSeq(block, "---\n") {
			o := &unstructured.Unstructured{}
			w.must(yaml.Unmarshal([]byte(document), o))
			if o.GetNamespace() == "preflight" || strings.HasPrefix(o.GetName(), "preflight") && o.GetKind() != "NodeGate" {
				c.create(o)
			}
		}
	}
	kubectl := "#!/bin/sh\nexec " + clustertest.Kubectl(w.T) + ` --as=system:serviceaccount:preflight:launcher "$@"` + "\n"
	w.must(os.WriteFile(filepath.Join(c.dir, "kubectl"), []byte(kubectl), 0o700)) //nolint:gosec // a program
	return c
}

// create creates an object, and stores the files of the ConfigMap.
func (c *nodeChecks) create(o *unstructured.Unstructured) {
	c.Helper()
	strict := client.WithFieldValidation(c.admin, metav1.FieldValidationStrict)
	c.must(strict.Create(c.Context(), o))
	files, _, err := unstructured.NestedStringMap(o.Object, "data")
	c.must(err)
	for name, text := range files {
		c.must(os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
	}
}

// launch runs the launcher's script once, with the rights of its ServiceAccount.
func (c *nodeChecks) launch() {
	c.Helper()
	script := exec.CommandContext(c.Context(), "sh", filepath.Join(c.dir, "launch.sh"))
	script.Env = append(os.Environ(), "PATH="+c.dir+":"+os.Getenv("PATH"), "KUBECONFIG="+c.cluster.Kubeconfig(), "KUBECACHEDIR="+os.DevNull,
		"JOB_FILE="+filepath.Join(c.dir, "job.yaml"))
	if output, err := script.CombinedOutput(); err != nil {
		c.Fatalf("running the launcher: %v\n%s", err, output)
	}
}

// jobs returns the Jobs that check nodes. The CronJob controller may have created others,
// in which the launcher would run.
func (c *nodeChecks) jobs() []batchv1.Job {
	c.Helper()
	var all batchv1.JobList
	c.must(c.admin.List(c.Context(), &all, client.InNamespace("preflight")))
	return slices.DeleteFunc(all.Items, func(j batchv1.Job) bool { return !strings.HasPrefix(j.Name, "preflight-") })
}

// pods returns the pods that check nodes.
func (c *nodeChecks) pods() []corev1.Pod {
	c.Helper()
	var all corev1.PodList
	c.must(c.admin.List(c.Context(), &all, client.InNamespace("preflight"), client.MatchingLabels{"app.kubernetes.io/name": "preflight"}))
	return all.Items
}

// finishes waits for a check that runs on a node, and ends it.
func (c *nodeChecks) finishes(node string, ok bool) {
	c.Helper()
	c.eventually("a check runs on "+node, func() error {
		pods := c.pods()
		for i := range pods {
			if p := &pods[i]; p.Spec.NodeName == node && p.Status.Phase == corev1.PodRunning {
				return c.endsIn(p, ok)
			}
		}
		return errNotYet
	})
}

// The guide's launcher creates one Job for each closed node and boot, with its own rights. The
// real Job, TTL and garbage collection controllers run: Jobs are deleted after they have
// finished and with their Node, which does not close the gate.
func TestNodeChecksGuide(t *testing.T) {
	w := newEvictionEnv(t)
	c := newNodeChecks(w)
	w.startController(0)
	w.applyPreset("preflight")
	w.inForce("preflight")
	const key = "startup-taint.cluster-autoscaler.kubernetes.io/preflight"
	good, bad := w.schedulableNode("good"), w.schedulableNode("bad")
	c.launch()
	c.launch() // creates nothing
	if n := len(c.jobs()); n != 2 {
		t.Fatalf("%d Jobs for two nodes", n)
	}
	c.finishes("good", true)
	good.becomes("preflight", isOpen, key)
	c.finishes("bad", false)
	w.waitsFor("preflight", "bad", v1alpha1.ReadingPodFailed)

	c.expire()
	w.settled()
	w.must(good.is("preflight", isOpen, key))
	w.waitsFor("preflight", "bad", v1alpha1.ReadingPodMissing)
	c.launch()
	if jobs := c.jobs(); len(jobs) != 1 {
		t.Fatalf("%d Jobs, want one that checks the closed node again", len(jobs))
	}
	c.finishes("bad", true)
	bad.becomes("preflight", isOpen, key)

	good.reboot()
	good.becomes("preflight", isClosed, key)
	c.launch()
	c.finishes("good", true)
	good.becomes("preflight", isOpen, key)
	w.must(w.admin.Delete(t.Context(), good.node()))
	w.must(w.admin.Delete(t.Context(), bad.node()))
	w.eventually("Jobs are deleted with their Nodes", func() error { return unless(len(c.jobs()) == 0) })
}

// expire makes the time limit after which Jobs are deleted pass.
func (c *nodeChecks) expire() {
	c.Helper()
	c.eventually("all Jobs have finished", func() error {
		for _, job := range c.jobs() {
			if job.Status.Succeeded+job.Status.Failed == 0 {
				return errNotYet
			}
		}
		return nil
	})
	for _, job := range c.jobs() {
		before := job.DeepCopy()
		job.Spec.TTLSecondsAfterFinished = new(int32)
		c.must(c.admin.Patch(c.Context(), &job, client.MergeFrom(before)))
	}
	c.eventually("finished Jobs and their pods are deleted", func() error {
		return unless(len(c.jobs())+len(c.pods()) == 0)
	})
}
