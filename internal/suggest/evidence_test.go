// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"strings"
	"testing"

	"github.com/nodegate/nodegate/internal/suggest"
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
