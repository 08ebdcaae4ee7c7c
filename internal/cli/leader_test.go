// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/status"
)

// The Lease determines whether a controller is running.
func TestLeader(t *testing.T) {
	lease := func(holder *string, age time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: holder, LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(clitest.Now.Add(-age))),
		}}
	}
	for name, c := range map[string]struct {
		lease   *coordinationv1.Lease
		running string
		want    string
	}{
		"running":                {lease(new("a"), 2*time.Second), status.Yes, "a renewed its lease 2s ago"},
		"late, or clocks differ": {lease(new("a"), 29*time.Second), status.Yes, "29s ago"},
		"its clock is ahead":     {lease(new("a"), -time.Minute), status.Yes, "0s ago"},
		"gone":                   {lease(new("a"), 31*time.Second), status.No, "no controller is running: a last renewed"},
		"released":               {lease(new(""), time.Second), status.No, "released its lease 1s ago"},
		"without holder":         {lease(nil, time.Hour), status.No, "released its lease"},
		"never renewed":          {&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a")}}, status.No, "no controller is running: a has never renewed its lease"},
		"never held":             {&coordinationv1.Lease{}, status.No, "no controller is running: its lease has never had a holder"},
	} {
		if got := judge(c.lease, clitest.Now); got.Running != c.running || !strings.Contains(got.Message, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Without a Lease, no controller has run, or it runs without leader election. If a gate has a
// status, one has run.
func TestLeaderWithoutLease(t *testing.T) {
	missing := leadership{namespace: "elsewhere", err: fmt.Errorf("reading: %w", apierrors.NewNotFound(coordinationv1.Resource("leases"), "nodegate"))}
	reported := v1alpha1.NodeGate{Status: v1alpha1.NodeGateStatus{ObservedGeneration: 1}}
	const noLease = "there is no Lease nodegate in namespace elsewhere"
	for _, c := range []struct {
		gates         []v1alpha1.NodeGate
		running, want string
	}{
		{[]v1alpha1.NodeGate{{}}, status.No, noLease + ": no controller has run there, or it runs with --leader-elect=false"},
		{[]v1alpha1.NodeGate{{}, reported}, status.Unknown, "it is unknown whether a controller is running: " + noLease + ", and one with --leader-elect=false has none"},
	} {
		if got := missing.controller(c.gates, clitest.Now); got.Running != c.running || !strings.HasPrefix(got.Message, c.want) {
			t.Errorf("%+v, want %s because %s", got, c.running, c.want)
		}
	}
	if got := missing.controller(nil, clitest.Now); got.Running != status.No {
		t.Errorf("without gates: %+v", got)
	}
}

// In the wrong namespace, the right one is named, if the user may read where nodegate is installed.
func TestStatusNamesTheNamespace(t *testing.T) {
	const binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nodegate"
	for name, c := range map[string]struct{ subjects, forbidden, want string }{
		"installed elsewhere": {"[{kind: ServiceAccount, namespace: infra, name: nodegate}]", "", "t is unknown whether a controller is running: nodegate is installed in namespace infra, not in nodegate-system: use --namespace=infra"},
		"installed here":      {"[{kind: ServiceAccount, namespace: nodegate-system, name: nodegate}]", "", "here is no Lease nodegate in namespace nodegate-system: no controller has run there, or it runs with --leader-elect=false.\n"},
		"forbidden":           {"[{kind: ServiceAccount, namespace: infra, name: nodegate}]", binding, "with --leader-elect=false; if nodegate is installed in another namespace, specify it with --namespace.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			objects[binding] = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, subjects: " + c.subjects + "}"
			a := newAPIServer(t, objects)
			a.forbid(c.forbidden)
			if _, out, err := a.run(t, "status"); !strings.Contains(out+err, c.want) {
				t.Errorf("output:\n%s%s\nwant %q", out, err, c.want)
			}
		})
	}
}
