// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/logind"
)

func TestFlags(t *testing.T) {
	t.Setenv("NODE_NAME", "from-variable")
	bootID := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(bootID, []byte("boot-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args           string
		node, dir, bus string
	}{
		{"", "from-variable", hold.Dir, ""},
		{"--node-name=n1 --state-dir=/state", "n1", "/state", ""},
		{"--announce-shutdowns", "from-variable", hold.Dir, logind.Socket},
	} {
		a, err := newAgent(append(strings.Fields(test.args), "--boot-id-file="+bootID))
		if err != nil {
			t.Errorf("%q: %v", test.args, err)
			continue
		}
		if a.Node != test.node || a.Store.Dir != test.dir || a.Bus != test.bus || a.Boot != "boot-1" || a.Uptime == nil {
			t.Errorf("%q: node %q, directory %q, bus %q, boot %q", test.args, a.Node, a.Store.Dir, a.Bus, a.Boot)
		}
	}
	for _, args := range []string{"--node-name=", "argument", "--boot-id-file=missing"} {
		if _, err := newAgent(strings.Fields(args)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
