// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/internal/release"
)

// Values of --dry-run, as in kubectl.
const (
	dryRunNone   = "none"
	dryRunClient = string(release.DryRunClient)
	dryRunServer = string(release.DryRunServer)
)

// dryRun is the flag --dry-run, which every verb that changes something has. The
// zero value makes the change.
type dryRun struct{ mode string }

func (d *dryRun) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&d.mode, "dry-run", dryRunNone, release.DryRunUsage)
}

// check rejects an unknown mode before any request is sent.
func (d *dryRun) check() error {
	_, err := release.ParseDryRun(d.mode)
	return err
}

// kind returns the kind of dry run. The mode must have been checked.
func (d *dryRun) kind() release.DryRun {
	kind, _ := release.ParseDryRun(d.mode)
	return kind
}

// client reports whether the change must not be sent to the API server.
func (d *dryRun) client() bool { return d.kind() == release.DryRunClient }
