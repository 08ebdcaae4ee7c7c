// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"strings"
	"testing"

	"github.com/nodegate/nodegate/internal/suggest"
	"github.com/nodegate/nodegate/presets"
)

// On Windows, paths contain backslashes.
func TestPathsOnWindows(t *testing.T) {
	w := world(t, daemonSet(t, "kube-system/x", strings.ReplaceAll(registers(""), "/var/lib/kubelet/plugins//csi.sock", `'C:\var\lib\kubelet\plugins\disk-b.example.com\csi.sock'`)))
	if s := suggest.Of(w).Suggestions; len(s) != 1 || !strings.Contains(s[0].Manifest, "csiDriver:\n      name: disk-b.example.com") {
		t.Errorf("the suggestions are %+v", s)
	}
	w = world(t, daemonSet(t, "kube-system/x", mounts(`'C:\etc\cni\net.d\'`, false)))
	if s := suggest.Of(w).Suggestions; len(s) != 1 || s[0].Why[0].Kind != suggest.CNI {
		t.Errorf("with a CNI configuration, the suggestions are %+v", s)
	}
}

// Sidecars (init containers that keep running) register drivers and serve DNS like other containers.
// Init containers that end do neither.
func TestSidecars(t *testing.T) {
	for name, c := range map[string]struct {
		container string
		want      suggest.Kind
	}{
		"a registrar":                 {"args: [--kubelet-registration-path=/var/lib/kubelet/plugins/disk-b.example.com/csi.sock], restartPolicy: Always", suggest.CSI},
		"a DNS server":                {"ports: [{containerPort: 53, hostPort: 53, protocol: UDP}], restartPolicy: Always", suggest.DNS},
		"a DNS server that ends":      {"ports: [{containerPort: 53, hostPort: 53, protocol: UDP}]", ""},
		"another container that ends": {"args: [--kubelet-registration-path=/var/lib/kubelet/plugins/disk-b.example.com/csi.sock]", ""},
	} {
		r := suggest.Of(world(t, daemonSet(t, "kube-system/x", plain+"initContainers: [{name: first, image: example.com/first, "+c.container+"}]\n")))
		switch {
		case c.want == "" && len(r.Suggestions) > 0, c.want != "" && (len(r.Suggestions) != 1 || r.Suggestions[0].Why[0].Kind != c.want):
			t.Errorf("%s: the suggestions are %+v, want the evidence %q", name, r.Suggestions, c.want)
		}
	}
}

// The Secrets Store CSI driver's directory does not have the driver's name. The name of its DaemonSet
// depends on how it was installed.
func TestSecretsStoreDriver(t *testing.T) {
	text, err := presets.Read("secrets-store-csi")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kube-system/csi-secrets-store", "kube-system/aks-secrets-store-csi-driver"} {
		w := world(t, daemonSet(t, name, registers("csi-secrets-store")))
		w.Presets, w.CSIDrivers = asPresets(t, string(text)), map[string]bool{"secrets-store.csi.k8s.io": true}
		if s := suggest.Of(w).Suggestions; len(s) != 1 || s[0].Preset != "secrets-store-csi" || !strings.Contains(s[0].Manifest, strings.TrimPrefix(name, "kube-system/")) {
			t.Errorf("%s: the suggestions are %+v", name, s)
		}
	}
}
