// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// nodegate starts although no inotify instances are left on the node, as it uses none.
func TestMountedCertificateIsNotWatched(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "host")
	served(t, dir, logr.Discard())()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%s", file.Name())); err == nil && strings.Contains(target, "inotify") {
			t.Errorf("file %s is %s", file.Name(), target)
		}
	}
}
