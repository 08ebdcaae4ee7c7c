// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os/signal"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/nodegate/nodegate/internal/printer"
)

// Texts contain kubectl commands to copy. Without the flags that selected the cluster, such a command
// would run on the cluster of the current context, and could change it. The last line on standard error
// therefore names the flags.

// commandWatcher is an output stream that records whether a kubectl command was written to it.
type commandWatcher struct {
	io.Writer
	written *atomic.Bool
}

var kubectlCommand = regexp.MustCompile(`\bkubectl\s`)

func (w commandWatcher) Write(text []byte) (int, error) {
	if kubectlCommand.Match(text) {
		w.written.Store(true)
	}
	return w.Writer.Write(text)
}

// unwatched returns the stream that a commandWatcher watches, for output that programs read, and to find
// out whether it is a terminal.
func unwatched(out io.Writer) io.Writer {
	if w, ok := out.(commandWatcher); ok {
		return w.Writer
	}
	return out
}

// printClusterFlags prints the flags that select the cluster if there are any and a command was written
// that requires them.
func (c *connection) printClusterFlags() {
	if flags := c.clusterFlags(); flags != "" && c.connected && c.commands.Load() {
		signal.Ignore(syscall.SIGPIPE) // the exit status does not depend on whether this can be written
		fmt.Fprint(c.streams.ErrOut, printer.Text("To run the printed kubectl commands on this cluster, add: "+flags+"\n"))
	}
}

// clusterFlags returns the flags that select the cluster, as they were specified. Without credentials, a
// command fails instead of running elsewhere.
func (c *connection) clusterFlags() string {
	var flags []string
	for _, f := range []struct {
		name  string
		value *string
	}{{"kubeconfig", c.KubeConfig}, {"context", c.Context}, {"cluster", c.ClusterName}, {"server", c.APIServer}} {
		if *f.value != "" {
			flags = append(flags, "--"+f.name+" "+shellWord(*f.value))
		}
	}
	return strings.Join(flags, " ")
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellWord quotes a value for a shell, if necessary.
func shellWord(value string) string {
	if plainWord.MatchString(value) {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
