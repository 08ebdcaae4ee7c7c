// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nodegate/nodegate/testcluster/await"
)

const (
	// registersLabel is the label of the nodes with a gate that waits for a plugin of the kubelet.
	registersLabel = "test.nodegate.dev/registers"
	deviceName     = "test.nodegate.dev/device"
	driverName     = "csi.test.nodegate.dev"
	// kubeletDir is the kubelet's directory on the machine.
	kubeletDir = "/var/lib/kubelet"
)

// A gate that waits for a resource opens when a device plugin has registered with the kubelet
// and has reported enough devices.
func TestDevicePlugin(t *testing.T) {
	h := newHostWith(t, map[string]string{registersLabel: "device"})
	h.setReady(t, true)
	must(t, h.PowerOn())
	h.await(t, true)
	h.awaitAgent(t, true)
	plugin := &devicePlugin{healthy: make(chan int, 1)}
	plugin.healthy <- 1
	h.serve(t, "device-plugins/test.sock", func(s *grpc.Server) { v1beta1.RegisterDevicePluginServer(s, plugin) })
	h.registerDevices(t)
	h.awaitDevices(t, 1)
	if !isClosed(h.newest()) {
		t.Error("the gate opened with one device, and needs two")
	}
	plugin.healthy <- 2
	h.awaitDevices(t, 2)
	h.await(t, false)

	// After a reboot, the kubelet reports no devices until the plugin has registered again.
	must(t, h.PowerOff())
	must(t, h.PowerOn())
	h.await(t, true)
	h.awaitDevices(t, 0)
	if opened := h.openedIn(h.BootID()); len(opened) > 0 {
		t.Error("the gate opened before the plugin registered in this boot")
	}
	h.serve(t, "device-plugins/test.sock", func(s *grpc.Server) { v1beta1.RegisterDevicePluginServer(s, plugin) })
	plugin.healthy <- 2
	h.registerDevices(t)
	h.awaitDevices(t, 2)
	h.await(t, false)
}

// A gate that waits for a CSI driver opens when the kubelet has registered the driver and its
// limit of volumes.
func TestCSIDriver(t *testing.T) {
	h := newHostWith(t, map[string]string{registersLabel: "driver"})
	h.setReady(t, true)
	must(t, h.PowerOn())
	h.await(t, true)
	h.awaitAgent(t, true)
	h.serve(t, "plugins/csi.sock", func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, csiDriver{})
		csi.RegisterNodeServer(s, csiDriver{})
	})
	h.serve(t, "plugins_registry/csi-reg.sock", func(s *grpc.Server) { registration.RegisterRegistrationServer(s, csiDriver{}) })
	h.await(t, false)
	var node storagev1.CSINode
	must(t, shared.client.Get(t.Context(), types.NamespacedName{Name: h.name}, &node))
	if len(node.Spec.Drivers) != 1 || node.Spec.Drivers[0].Name != driverName || *node.Spec.Drivers[0].Allocatable.Count != 7 {
		t.Errorf("the CSINode has the drivers %+v", node.Spec.Drivers)
	}
}

// serve serves a socket in the kubelet's directory until the test ends. The machine has the
// directory, too.
func (h *host) serve(t *testing.T, socket string, register func(*grpc.Server)) {
	t.Helper()
	path := filepath.Join(h.Var(), "lib/kubelet", socket)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	listener, err := net.Listen("unix", path)
	must(t, err)
	server := grpc.NewServer()
	register(server)
	go func() { _ = server.Serve(listener) }() // it ends when the server is stopped
	t.Cleanup(server.Stop)
}

// registerDevices registers the device plugin with the kubelet.
func (h *host) registerDevices(t *testing.T) {
	t.Helper()
	connection, err := grpc.NewClient("unix:"+filepath.Join(h.Var(), "lib/kubelet/device-plugins/kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer connection.Close()
	_, err = v1beta1.NewRegistrationClient(connection).Register(t.Context(), &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: "test.sock", ResourceName: deviceName,
	})
	must(t, err)
}

// awaitDevices waits until the kubelet has reported a number of devices.
func (h *host) awaitDevices(t *testing.T, n int64) {
	t.Helper()
	must(t, await.Until(t.Context(), "devices", func(context.Context) error {
		devices := h.newest().Status.Allocatable[corev1.ResourceName(deviceName)]
		if devices.Value() != n {
			return fmt.Errorf("%s of %d are allocatable", devices.String(), n)
		}
		return nil
	}))
}

// devicePlugin reports as many healthy devices as it receives.
type devicePlugin struct {
	v1beta1.UnimplementedDevicePluginServer
	healthy chan int
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// Allocate allocates devices that need nothing.
func (p *devicePlugin) Allocate(_ context.Context, r *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for range r.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &v1beta1.ContainerAllocateResponse{})
	}
	return response, nil
}

func (p *devicePlugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		select {
		case n := <-p.healthy:
			var response v1beta1.ListAndWatchResponse
			for i := range n {
				response.Devices = append(response.Devices, &v1beta1.Device{ID: fmt.Sprint(i), Health: v1beta1.Healthy})
			}
			if err := stream.Send(&response); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// csiDriver is the node part of a CSI driver, and its registration with the kubelet.
type csiDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
}

func (csiDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: driverName, Endpoint: kubeletDir + "/plugins/csi.sock", SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (csiDriver) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		return nil, errors.New(status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func (csiDriver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "machine", MaxVolumesPerNode: 7}, nil
}

func (csiDriver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}
