// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/nodegate/nodegate/bench/figure"
)

func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{{"-rounds=-1"}, {"x"}, {"-rounds=many"}, {"-no-such-flag"}, {"-out=no/such"}, {"-out=main.go"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	for command, args := range map[string][]string{
		"go run ./bench":                           nil,
		"go run ./bench -quick":                    {"-quick"},
		"go run ./bench -quick -rounds 3 -only P1": {"-only=P1", "-rounds=3", "-quick", "-out=."},
	} {
		o, err := parse(args, io.Discard)
		if err != nil || o.command() != command {
			t.Errorf("%v: %+v, %v; want %s", args, o, err, command)
		}
	}
}

func TestSizes(t *testing.T) {
	if rounds := (&options{}).sizes().Rounds; rounds < 5 {
		t.Errorf("a full run has %d rounds", rounds)
	}
	if rounds := (&options{quick: true, rounds: 3}).sizes().Rounds; rounds != 3 {
		t.Errorf("%d rounds, want the requested 3", rounds)
	}
	if quick := (&options{quick: true}).sizes(); quick.Fleets[len(quick.Fleets)-1] >= figure.Full.Fleets[len(figure.Full.Fleets)-1] {
		t.Error("a quick run has fleets as large as a full one")
	}
}

func TestChosenFigures(t *testing.T) {
	all, err := choose(figure.All, "")
	if err != nil || len(all) != len(figure.All) {
		t.Errorf("%d, %v", len(all), err)
	}
	first, last := all[0].ID, all[len(all)-1].ID
	chosen, err := choose(figure.All, last+","+first)
	if err != nil || len(chosen) != 2 || chosen[0].ID != first {
		t.Errorf("%d, %v; want two, in the order of measurement", len(chosen), err)
	}
	for _, only := range []string{"P0", "P1,", first + ",P1x"} {
		if _, err := choose(figure.All, only); err == nil {
			t.Errorf("%q is accepted", only)
		}
	}
}

// Peers that cannot be read are an error before anything is started.
func TestUnreadablePeers(t *testing.T) {
	if err := dispatch(t.Context(), []string{"-peers", "no-such-file.yaml"}); err == nil {
		t.Error("a missing file is accepted")
	}
}
