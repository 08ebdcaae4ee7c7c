// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// runAlone runs a verb in a process of its own, which a signal can end. streams assigns a pipe
// that nobody reads to one of the process's streams.
func runAlone(t *testing.T, server string, streams func(*exec.Cmd, *os.File), args ...string) error {
	t.Helper()
	const env = "NODEGATE_TEST_ARGUMENTS"
	if own := os.Getenv(env); own != "" {
		streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
		os.Exit(Execute(t.Context(), streams, strings.Fields(own)))
	}
	unread, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	unread.Close()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), env+"="+strings.Join(append(args, "--server", server), " "), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"))
	streams(command, out)
	return command.Run()
}

// Uninstall completes even if its output is no longer read, as in
// 'kubectl gate uninstall | head -1': stopping half-way would be the worst outcome.
func TestUninstallGoesOnWhereNobodyReads(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": []}`)
	}))
	defer server.Close()
	streams := func(c *exec.Cmd, unread *os.File) { c.Stdout, c.Stderr = unread, os.Stderr }
	if err := runAlone(t, server.URL, streams, "uninstall"); err != nil {
		t.Errorf("the process ended with %v", err)
	}
}

// Overrides are written on all nodes and reported, even if the warnings are no longer read.
func TestOverridesGoOnWhereNobodyReadsWarnings(t *testing.T) {
	objects := smallCluster()
	objects[nodesPath+"/n2"] = strings.Replace(heldNode, "name: n1", "name: n2", 1)
	a := newAPIServer(t, objects)
	for verb, more := range map[string]string{"open": " --for=1h --reason=x", "close": " --for=1h --reason=x", "reset": ""} {
		var out bytes.Buffer
		streams := func(c *exec.Cmd, unread *os.File) { c.Stdout, c.Stderr = &out, unread }
		err := runAlone(t, a.URL, streams, strings.Fields(verb+" n1 n2 --gate=agent"+more)...)
		if writes := a.written(); err != nil || len(writes) != 2 || !strings.Contains(out.String(), "n2") {
			t.Errorf("%s: the process ended with %v after the writes %v:\n%s", verb, err, writes, &out)
		}
	}
}

// If nobody reads the report, the process ends like others in a pipe, once all nodes are written.
func TestOverridesAreWrittenWhereNobodyReadsTheReport(t *testing.T) {
	objects := smallCluster()
	objects[nodesPath+"/n2"] = strings.Replace(heldNode, "name: n1", "name: n2", 1)
	a := newAPIServer(t, objects)
	var ended *exec.ExitError
	streams := func(c *exec.Cmd, unread *os.File) { c.Stdout = unread }
	err := runAlone(t, a.URL, streams, strings.Fields("open n1 n2 --gate=agent --for=1h --reason=x")...)
	if writes := a.written(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE || len(writes) != 2 {
		t.Errorf("the process ended with %v after the writes %v", err, writes)
	}
}
