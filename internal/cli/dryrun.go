// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/internal/release"
)

// What --dry-run may be, in kubectl's words.
const (
	dryRunNone   = "none"
	dryRunClient = string(release.DryRunClient)
	dryRunServer = string(release.DryRunServer)
)

// dryRun is how much of a change a verb makes. Every verb that changes something
// has the flag. The zero value makes the change.
type dryRun struct{ mode string }

func (d *dryRun) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&d.mode, "dry-run", dryRunNone, release.DryRunUsage)
}

// check refuses a mode that there is not, before anything is asked.
func (d *dryRun) check() error {
	_, err := release.ParseDryRun(d.mode)
	return err
}

// kind is the dry run, once it is checked.
func (d *dryRun) kind() release.DryRun {
	kind, _ := release.ParseDryRun(d.mode)
	return kind
}

// client tells whether nothing is to be sent.
func (d *dryRun) client() bool { return d.kind() == release.DryRunClient }
