// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestDryRun(t *testing.T) {
	for _, c := range []struct {
		args     []string
		client   bool
		options  []string
		suffix   string
		rejected string
	}{
		{args: nil},
		{args: []string{"--dry-run=none"}},
		{args: []string{"--dry-run=client"}, client: true, suffix: " (dry run)"},
		{args: []string{"--dry-run=server"}, options: []string{"All"}, suffix: " (server dry run)"},
		{args: []string{"--dry-run=true"}, rejected: "invalid --dry-run=true: use none, client or server"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			var d dryRun
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			d.addFlags(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			rejected := ""
			if err := d.check(); err != nil {
				rejected = err.Error()
			}
			if rejected != c.rejected {
				t.Fatalf("error %q, want %q", rejected, c.rejected)
			}
			if rejected == "" && (d.client() != c.client || !slices.Equal(d.kind().Server(), c.options) || d.kind().Suffix() != c.suffix) {
				t.Errorf("client %v, options %q, suffix %q", d.client(), d.kind().Server(), d.kind().Suffix())
			}
		})
	}
}
