// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// volumeEnv is a cluster with the real scheduler and all real controllers,
// of which those of volumes, stateful sets, node lifecycle, taint eviction and
// pod garbage matter here. The test plays the machines with their kubelets, and
// the driver of the disks.
type volumeEnv struct {
	*env
	mu sync.Mutex
	// running names the machines that are up, and reach the API server.
	running map[string]bool
	// disks tell to which machine the driver has attached each disk.
	disks map[string]string
}

const (
	diskDriver = "disks.example.com"
	// unreachableAfter is how long a machine's lease must have expired for the node
	// lifecycle controller to call it silent. By default it is 50 seconds.
	unreachableAfter = 15 * time.Second
)

func newVolumeEnv(t *testing.T) *volumeEnv {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	t.Parallel() // it has a cluster of its own
	grace := unreachableAfter.String()
	c, err := testcluster.Start(t.Context(), testcluster.Options{
		Audit: true, Components: []testcluster.Component{testcluster.ControllerManager, testcluster.Scheduler},
		ExtraArgs: map[testcluster.Component][]string{testcluster.ControllerManager: {
			"--node-monitor-period=1s", "--node-monitor-grace-period=" + grace, "--node-startup-grace-period=" + grace,
		}},
	})
	if err != nil {
		t.Fatalf("starting a cluster: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.Keep()
			t.Logf("the cluster's logs are in %s", c.Dir())
		}
		if err := errors.Join(c.Err(), c.Stop()); err != nil {
			t.Errorf("stopping the cluster: %v", err)
		}
	})
	d := &volumeEnv{env: &env{T: t, cluster: c, admin: newClient(t, c)}, running: map[string]bool{}, disks: map[string]string{}}
	d.must(d.apply(t.Context()))
	d.must(d.awaitPolicies(t.Context()))
	d.must(d.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: daemonNamespace}}))
	d.must(d.admin.Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: diskDriver}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)},
	}))
	d.must(d.admin.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: diskDriver}))
	for _, work := range []func(context.Context) error{d.renewLeases, d.runPods, d.attachDisks} {
		d.every(300*time.Millisecond, work)
	}
	return d
}

// every calls a function periodically until the test ends.
func (d *volumeEnv) every(period time.Duration, work func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := work(ctx); err != nil && ctx.Err() == nil {
				d.Logf("trying again: %v", err)
			}
		}, period)
	}()
	d.Cleanup(func() { cancel(); <-done })
}

// await is like eventually, but returns the time at which the check succeeded.
func (d *volumeEnv) await(what string, check func() error) time.Time {
	d.Helper()
	d.eventually(what, check)
	return time.Now()
}

// startMachine registers a node that has room for pods and disks, and runs it.
func (d *volumeEnv) startMachine(name string, labels ...string) *kubelet {
	d.Helper()
	k := d.kubelet(name)
	k.register(func(n *corev1.Node) {
		for _, label := range labels {
			n.Labels[label] = ""
		}
		n.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
		n.Status.Allocatable = corev1.ResourceList{
			corev1.ResourcePods: resource.MustParse("50"), corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		}
		n.Status.Capacity = n.Status.Allocatable
	})
	d.must(d.admin.Create(d.Context(), &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: diskDriver, NodeID: name}}},
	}))
	d.power(name, true)
	return k
}

// power switches a machine on or off, or its network.
func (d *volumeEnv) power(name string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[name] = on
}

func (d *volumeEnv) isRunning(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running[name]
}

// renewLeases is the kubelets' heartbeat.
func (d *volumeEnv) renewLeases(ctx context.Context) error {
	d.mu.Lock()
	var names []string
	for name, on := range d.running {
		if on {
			names = append(names, name)
		}
	}
	d.mu.Unlock()
	for _, name := range names {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
		err := d.admin.Get(ctx, client.ObjectKeyFromObject(lease), lease)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NowMicro()),
		}
		if err != nil {
			err = d.admin.Create(ctx, lease)
		} else {
			err = d.admin.Update(ctx, lease)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runPods simulates the kubelets: it starts pods whose disk is attached, and stops deleted
// pods.
func (d *volumeEnv) runPods(ctx context.Context) error {
	var pods corev1.PodList
	if err := d.admin.List(ctx, &pods, client.InNamespace(daemonNamespace)); err != nil {
		return err
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !d.isRunning(pod.Spec.NodeName) {
			continue
		}
		disk := strings.TrimSuffix(pod.Name, "-0")
		switch {
		case pod.DeletionTimestamp != nil:
			errs = append(errs, d.setInUse(ctx, pod.Spec.NodeName), client.IgnoreNotFound(d.admin.Delete(ctx, pod, client.GracePeriodSeconds(0))))
		case pod.Status.Phase == corev1.PodPending && d.isAttached(disk, pod.Spec.NodeName):
			before := pod.DeepCopy()
			before.Status = corev1.PodStatus{} // so that all of it is written
			pod.Status = daemonStatus(true, "containerd://"+string(uuid.NewUUID()))
			errs = append(errs, d.setInUse(ctx, pod.Spec.NodeName, disk), d.admin.Status().Patch(ctx, pod, client.MergeFrom(before)))
		}
	}
	return errors.Join(errs...)
}

// setInUse reports the disks that are mounted on a machine.
func (d *volumeEnv) setInUse(ctx context.Context, name string, disks ...string) error {
	var node corev1.Node
	if err := d.admin.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return err
	}
	before := node.DeepCopy()
	node.Status.VolumesInUse = nil
	for _, disk := range disks {
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, corev1.UniqueVolumeName("kubernetes.io/csi/"+diskDriver+"^"+disk))
	}
	return d.admin.Status().Patch(ctx, &node, client.MergeFrom(before))
}

func (d *volumeEnv) isAttached(disk, machine string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.disks[disk] == machine
}

// attachDisks is the disks' driver with its attacher: it does what attachments
// ask for. A disk that is attached to one machine it attaches to no other.
func (d *volumeEnv) attachDisks(ctx context.Context) error {
	var attachments storagev1.VolumeAttachmentList
	if err := d.admin.List(ctx, &attachments); err != nil {
		return err
	}
	var errs []error
	for i := range attachments.Items {
		errs = append(errs, d.attachDisk(ctx, &attachments.Items[i]))
	}
	return errors.Join(errs...)
}

const attacherFinalizer = "external-attacher/disks-example-com"

func (d *volumeEnv) attachDisk(ctx context.Context, a *storagev1.VolumeAttachment) error {
	disk, machine := *a.Spec.Source.PersistentVolumeName, a.Spec.NodeName
	before := a.DeepCopy()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case a.DeletionTimestamp != nil && slices.Contains(a.Finalizers, attacherFinalizer):
		delete(d.disks, disk)
		a.Finalizers = nil
		return client.IgnoreNotFound(d.admin.Patch(ctx, a, client.MergeFrom(before)))
	case a.DeletionTimestamp != nil || a.Status.Attached:
		return nil
	case d.disks[disk] != "" && d.disks[disk] != machine:
		d.Errorf("disk %s is attached to %s, and shall be attached to %s too", disk, d.disks[disk], machine)
		return nil
	}
	a.Finalizers = []string{attacherFinalizer}
	if err := d.admin.Patch(ctx, a, client.MergeFrom(before)); err != nil {
		return err
	}
	before = a.DeepCopy()
	a.Status.Attached = true
	if err := d.admin.Status().Patch(ctx, a, client.MergeFrom(before)); err != nil {
		return err
	}
	d.disks[disk] = machine
	return nil
}

// database creates a disk, and a stateful set of one pod that needs it and may
// run on nodes with one of these labels.
func (d *volumeEnv) database(name string, labels ...string) {
	d.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	once := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	d.must(d.admin.Create(d.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: once, StorageClassName: "disks",
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: daemonNamespace, Name: "data-" + name + "-0"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: diskDriver, VolumeHandle: name},
			},
		},
	}))
	app := map[string]string{"app": name}
	affinity := &corev1.NodeSelector{}
	for _, label := range labels {
		affinity.NodeSelectorTerms = append(affinity.NodeSelectorTerms, corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpExists}},
		})
	}
	d.must(d.admin.Create(d.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec: corev1.PodSpec{
					Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: affinity}},
					Containers: []corev1.Container{{
						Name: "daemon", Image: "database", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
					}},
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: once, StorageClassName: ptr.To("disks"), Resources: corev1.VolumeResourceRequirements{Requests: size},
				},
			}},
		},
	}))
}

// runsOn checks where a database runs with its disk.
func (d *volumeEnv) runsOn(name string, isIt func(machine string) bool) error {
	var pod corev1.Pod
	if err := d.admin.Get(d.Context(), client.ObjectKey{Namespace: daemonNamespace, Name: name + "-0"}, &pod); err != nil {
		return err
	}
	machine := pod.Spec.NodeName
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || !isIt(machine) || !d.isAttached(name, machine) {
		return fmt.Errorf("pod %s is %s on node %q, deleted %v", pod.Name, pod.Status.Phase, machine, pod.DeletionTimestamp)
	}
	return nil
}

// managerLogged counts the lines of the controller manager's log that contain all texts.
func (d *volumeEnv) managerLogged(words ...string) (n int) {
	d.Helper()
	log, err := os.ReadFile(d.cluster.LogFile(testcluster.ControllerManager))
	d.must(err)
	for line := range strings.Lines(string(log)) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}
