// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What --dry-run may be, in kubectl's words.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// dryRun is how much of a change a verb makes. Every verb that changes something
// has the flag. The zero value makes the change.
type dryRun struct{ mode string }

func (d *dryRun) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&d.mode, "dry-run", dryRunNone,
		"none, client (say what would be changed, and send nothing) or server (have the API server check it, and keep nothing)")
}

// check refuses a mode that there is not, before anything is asked.
func (d *dryRun) check() error {
	switch d.mode {
	case "", dryRunNone, dryRunClient, dryRunServer:
		return nil
	}
	return fmt.Errorf("there is no --dry-run=%s: choose %s, %s or %s", d.mode, dryRunNone, dryRunClient, dryRunServer)
}

// client tells whether nothing is to be sent.
func (d *dryRun) client() bool { return d.mode == dryRunClient }

// options are the DryRun of the options of a request that changes something.
func (d *dryRun) options() []string {
	if d.mode == dryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// suffix is what kubectl puts behind a line that says what was done.
func (d *dryRun) suffix() string {
	switch d.mode {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	}
	return ""
}
