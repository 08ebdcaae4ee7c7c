// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

func TestMain(m *testing.M) {
	Init()
	clustertest.Main(m, testcluster.Options{Components: []testcluster.Component{testcluster.Scheduler, testcluster.ControllerManager}})
}

// newMachine returns a machine that is off, and a client of the cluster.
func newMachine(t *testing.T) (*Machine, kubernetes.Interface) {
	t.Helper()
	clustertest.SkipIfShort(t)
	if err := Unsupported(); err != nil {
		t.Skipf("a machine cannot run here: %v", err)
	}
	cluster := clustertest.Shared(t)
	programs, err := Programs(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	image := filepath.Join(dir, "image.tar")
	if err := BuildImage(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	m, err := New(Options{Name: "m1", Number: 1, Dir: dir, Cluster: cluster, Programs: programs, Image: image})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, m)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := kubernetes.NewForConfig(cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	return m, c
}

// showLogs logs the end of the machine's logs.
func showLogs(t *testing.T, m *Machine) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(m.Logs(), "*.log"))
	for _, file := range files {
		content, _ := os.ReadFile(file)
		t.Logf("%s:\n%s", file, content[max(0, len(content)-6000):])
	}
}

// A machine registers as a Node and runs pods. After a power cut, nothing of it is left but
// its disk; it boots again as the same Node, with another boot ID, and starts the pods
// again.
func TestPowerCut(t *testing.T) {
	m, c := newMachine(t)
	settings := readSettings(t)
	if err := m.PowerOn(); err != nil {
		t.Fatal(err)
	}
	first := m.BootID()
	awaitNode(t, c, m)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			NodeName: "m1",
			Containers: []corev1.Container{{
				Name: "c", Image: ImageName, ImagePullPolicy: corev1.PullNever, Args: []string{"run", SharedDir + "/starts", "p"},
				VolumeMounts: []corev1.VolumeMount{{Name: "shared", MountPath: SharedDir}},
			}},
			Volumes: []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: SharedDir}}}},
		},
	}
	if _, err := c.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitStarts(t, m, 1)
	if len(mountsOf(t, m.options.Dir)) == 0 {
		t.Error("the machine is on, and nothing is mounted")
	}
	if err := m.PowerOff(); err != nil {
		t.Fatal(err)
	}
	if after := readSettings(t); !maps.Equal(after, settings) {
		t.Errorf("settings of the host are %v, and were %v", after, settings)
	}
	if holders := mountsOf(t, m.options.Dir); len(holders) > 0 {
		t.Errorf("the machine is off, and still mounted: %v", holders)
	}
	if err := m.PowerOn(); err != nil {
		t.Fatal(err)
	}
	if m.BootID() == first {
		t.Error("the boot ID is the same")
	}
	awaitNode(t, c, m)
	awaitStarts(t, m, 2)
}

// readSettings returns the host's settings.
func readSettings(t *testing.T) map[string]string {
	t.Helper()
	values := make(map[string]string)
	for _, name := range hostSettings {
		value, err := os.ReadFile(filepath.Join(settingsDir, name))
		if err != nil {
			t.Fatal(err)
		}
		values[name] = string(value)
	}
	return values
}

// mountsOf returns the mount tables of processes in which a directory is mounted.
func mountsOf(t *testing.T, dir string) (holders []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// A process may have ended.
		if mounts, err := os.ReadFile(file); err == nil && strings.Contains(string(mounts), dir) {
			holders = append(holders, file)
		}
	}
	return holders
}

// awaitNode waits until the Node is Ready in the current boot.
func awaitNode(t *testing.T, c kubernetes.Interface, m *Machine) {
	t.Helper()
	err := await.Until(t.Context(), "Node of the machine", func(ctx context.Context) error {
		node, err := c.CoreV1().Nodes().Get(ctx, m.options.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && node.Status.NodeInfo.BootID == m.BootID() {
				return nil
			}
		}
		return fmt.Errorf("boot %s, want %s; conditions %+v", node.Status.NodeInfo.BootID, m.BootID(), node.Status.Conditions)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitStarts waits until the pod's container has started at least want times.
func awaitStarts(t *testing.T, m *Machine, want int) {
	t.Helper()
	err := await.Until(t.Context(), "container", func(context.Context) error {
		content, err := os.ReadFile(filepath.Join(m.Shared(), "starts"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if n := strings.Count(string(content), "\n"); n < want {
			return fmt.Errorf("%d starts, want %d", n, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
