// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/nodegate/nodegate/e2e/torture"
)

func TestMakeCommand(t *testing.T) {
	for _, test := range []struct {
		phases []string
		older  string
		want   string
	}{
		{nil, "", "make torture SEED=7 MINUTES=1.5"},
		{[]string{"R3", "R10"}, "v0.1.0", `make torture SEED=7 MINUTES=1.5 OLDER_REVISION=v0.1.0 PHASES="R3 R10"`},
	} {
		if got := makeCommand(&torture.Options{Seed: 7, Phases: test.phases}, 1.5, test.older); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}
