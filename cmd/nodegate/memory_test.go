// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/kube/connection"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

func TestTuneMemory(t *testing.T) {
	for _, test := range []struct {
		name       string
		gogc       string
		gomemlimit string
		percent    int
	}{
		{"by default", "", "1GiB", gcPercent},
		{"set in the environment", "80", "2GiB", 80},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("GOGC", test.gogc)
			t.Setenv("GOMEMLIMIT", test.gomemlimit)
			defer debug.SetGCPercent(debug.SetGCPercent(80)) // as set by the runtime for GOGC
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
			tuneMemory(t.Context(), logr.Discard(), memlimit.Limit(1<<30))
			if got := debug.SetGCPercent(80); got != test.percent {
				t.Errorf("GOGC is %d, want %d", got, test.percent)
			}
			if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
				t.Errorf("the limit of the environment was changed to %d", got)
			}
		})
	}
}

// The memory limit follows that of a container that is resized in place.
func TestMemoryLimitFollowsTheContainer(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "") // restores it
	if err := os.Unsetenv("GOMEMLIMIT"); err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(80))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var container atomic.Uint64
		container.Store(512 << 20)
		tuneMemory(ctx, logr.Discard(), func() (uint64, error) { return container.Load(), nil })
		for _, limit := range []uint64{512 << 20, 2 << 30, 1 << 30} {
			container.Store(limit)
			controllertest.Pass(limitInterval)
			if got, want := debug.SetMemoryLimit(-1), int64(float64(limit)*0.9); got != want {
				t.Errorf("the limit is %d in a container with %d, want %d", got, limit, want)
			}
		}
	})
}

func TestTuneProfiling(t *testing.T) {
	rate := runtime.MemProfileRate
	defer func() { runtime.MemProfileRate = rate }()
	for address, want := range map[string]int{"": 0, "0": 0, "127.0.0.1:6060": 1 << 10} {
		runtime.MemProfileRate = 1 << 10
		if tuneProfiling(address); runtime.MemProfileRate != want {
			t.Errorf("address %q: the rate is %d, want %d", address, runtime.MemProfileRate, want)
		}
	}
}

func TestTuneProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, test := range []struct {
		name       string
		gomaxprocs string
		has, want  int
	}{
		{"a large machine", "", 64, maxProcessors},
		{"a small machine", "", 2, 2},
		{"set in the environment", "64", 64, 64},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", test.gomaxprocs)
			runtime.GOMAXPROCS(test.has)
			tuneProcessors()
			if got := runtime.GOMAXPROCS(0); got != test.want {
				t.Errorf("%d processors, want %d", got, test.want)
			}
		})
	}
}

// All clients of the configuration have small buffers.
func TestBuffersAreBounded(t *testing.T) {
	c := clustertest.Shared(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(path, c.Admin()); err != nil {
		t.Fatal(err)
	}
	config, err := restConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // they share the transport
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		transport := connection.Innermost(client.Transport)
		if transport == nil || transport.HTTP2 == nil || transport.HTTP2.MaxReceiveBufferPerStream != receiveBuffer {
			t.Fatalf("the transport is %+v", transport)
		}
		clientset, err := kubernetes.NewForConfigAndClient(config, client)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clientset.Discovery().ServerVersion(); err != nil {
			t.Errorf("reading through the transport: %v", err)
		}
	}
}
