// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A flag of both 'nodegate manifests' and 'nodegate controller' cannot be in extraArgs, which reaches only
// the controller: the policies would reject what it then does.
func TestFlagsThatPoliciesAndPermissionsNeedToo(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/reference/programs.md")
	must(t, err)
	flagsOf := func(command string) (names []string) {
		_, section, _ := strings.Cut(string(text), "\n## nodegate "+command+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, match := range flagLine.FindAllStringSubmatch(section, -1) {
			names = append(names, match[1])
		}
		return names
	}
	manifests, both := flagsOf("manifests"), 0
	for _, name := range flagsOf("controller") {
		if name == "help" {
			continue
		}
		shared := slices.Contains(manifests, name)
		if shared {
			both++
		}
		for _, arg := range []string{"--" + name, "--" + name + "=x"} {
			if preventsElection(arg) {
				continue
			}
			_, err := helm(t, object{"extraArgs": []string{"--workers=8", arg}}, "template", "nodegate", chart)
			if want := "extraArgs has --" + name + ", which would apply only to the program, not to its policies and permissions: "; shared != (err != nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; rejected: %t", arg, err, shared)
			}
		}
	}
	if both < 6 {
		t.Errorf("both commands have only %d flags", both)
	}
}

// Replicas that elect no leader, or that share an identity, would all change nodes. Also during the upgrade of a
// single replica there are two.
func TestFlagsThatPreventLeaderElection(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"--leader-elect=true", "--leader-elect-lease-duration=4s"} {
		_, err := helm(t, object{"extraArgs": []string{arg}}, "template", "nodegate", chart)
		must(t, err)
	}
	for _, arg := range []string{"--leader-elect=false", "--leader-elect=0", "--leader-elect-identity=x"} {
		_, err := helm(t, object{"replicas": 1, "extraArgs": []string{"--workers=8", arg}}, "template", "nodegate", chart)
		if want := "extraArgs has " + arg + ", with which several replicas could change nodes at the same time: remove it"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}

// preventsElection reports whether TestFlagsThatPreventLeaderElection is about an argument.
func preventsElection(arg string) bool {
	return strings.HasPrefix(arg, "--leader-elect=") && arg != "--leader-elect=true" || strings.HasPrefix(arg, "--leader-elect-identity")
}

// flagLine matches a flag in the help text of a command.
var flagLine = regexp.MustCompile(`(?m)^ +(?:-., )?--([a-z-]+)`)
