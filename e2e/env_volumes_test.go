// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster"
)

// volumeEnv is a cluster with the real scheduler and all real controllers. Those of volumes,
// StatefulSets, node lifecycle, taint eviction and pod garbage collection matter here. The test simulates the machines with their kubelets, and the CSI driver of the disks.
type volumeEnv struct {
	*env
	mu sync.Mutex
	// running contains the machines that are up and reach the API server.
	running map[string]bool
	// disks maps each disk to the machine to which the driver has attached it.
	disks map[string]string
}

const (
	diskDriver = "disks.example.com"
	// unreachableAfter is how long a node's Lease must have expired before the node lifecycle
	// controller sets its Ready condition to Unknown. By default it is 50 seconds.
	unreachableAfter = 15 * time.Second
)

func newVolumeEnv(t *testing.T) *volumeEnv {
	t.Helper()
	grace := unreachableAfter.String()
	d := &volumeEnv{
		env: newControllersEnv(t, []testcluster.Component{testcluster.ControllerManager, testcluster.Scheduler},
			"--node-monitor-period=1s", "--node-monitor-grace-period="+grace, "--node-startup-grace-period="+grace),
		running: map[string]bool{}, disks: map[string]string{},
	}
	d.must(d.admin.Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: diskDriver}, Spec: storagev1.CSIDriverSpec{AttachRequired: new(true)},
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
				d.Logf("retrying after an error: %v", err)
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

// startMachine registers a node with capacity for pods and disks, and switches its machine on.
func (d *volumeEnv) startMachine(name string, labels ...string) *kubelet {
	d.Helper()
	k := d.kubelet(name)
	k.register(func(n *corev1.Node) {
		for _, label := range labels {
			n.Labels[label] = ""
		}
		n.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
		hasCapacity(n)
	})
	d.must(d.admin.Create(d.Context(), &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: diskDriver, NodeID: name}}},
	}))
	d.power(name, true)
	return k
}

// power switches a machine, or its network, on or off.
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

// renewLeases sends the kubelets' heartbeats.
func (d *volumeEnv) renewLeases(ctx context.Context) error {
	d.mu.Lock()
	names := slices.Collect(maps.Keys(d.running))
	d.mu.Unlock()
	for _, name := range names {
		if !d.isRunning(name) {
			continue
		}
		if err := d.renewLease(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *volumeEnv) renewLease(ctx context.Context, name string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	err := d.admin.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro()),
	}
	switch {
	case apierrors.IsNotFound(err):
		return d.admin.Create(ctx, lease)
	case err != nil:
		return err
	}
	return d.admin.Update(ctx, lease)
}

// runPods starts pods whose disk is attached, and stops deleted pods, as the kubelets.
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
			errs = append(errs, d.setInUse(ctx, pod.Spec.NodeName, disk), d.runContainers(ctx, pod, true))
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

// attachDisks attaches and detaches disks as VolumeAttachments require, as the CSI driver
// with its attacher. A disk that is attached to one machine must not be requested on
// another.
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
		d.Errorf("disk %s is attached to %s, and a VolumeAttachment requests it on %s", disk, d.disks[disk], machine)
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

// database creates a disk, and a StatefulSet of one pod that needs it and can run on nodes
// with one of these labels.
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
	d.must(d.admin.Create(d.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: daemonNamespace, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: databasePod(labels)},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: once, StorageClassName: new("disks"), Resources: corev1.VolumeResourceRequirements{Requests: size},
				},
			}},
		},
	}))
}

// databasePod returns a pod that mounts the disk, for nodes with one of these labels.
func databasePod(labels []string) corev1.PodSpec {
	nodes := &corev1.NodeSelector{}
	for _, label := range labels {
		nodes.NodeSelectorTerms = append(nodes.NodeSelectorTerms, corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpExists}},
		})
	}
	return corev1.PodSpec{
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: nodes}},
		Containers: []corev1.Container{{
			Name: "daemon", Image: "database", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}},
	}
}

// runsOn checks that a database runs, with its disk, on a machine that matches.
func (d *volumeEnv) runsOn(name string, matches func(machine string) bool) error {
	var pod corev1.Pod
	if err := d.admin.Get(d.Context(), client.ObjectKey{Namespace: daemonNamespace, Name: name + "-0"}, &pod); err != nil {
		return err
	}
	machine := pod.Spec.NodeName
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || !matches(machine) || !d.isAttached(name, machine) {
		return fmt.Errorf("pod %s is %s on node %q, deleted %v", pod.Name, pod.Status.Phase, machine, pod.DeletionTimestamp)
	}
	return nil
}

// managerLogged returns the number of lines in kube-controller-manager's log that contain all
// texts.
func (d *volumeEnv) managerLogged(texts ...string) (n int) {
	d.Helper()
	log, err := os.ReadFile(d.cluster.LogFile(testcluster.ControllerManager))
	d.must(err)
	for line := range strings.Lines(string(log)) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}
