// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// deployment returns a Deployment with a pod template of one container in the last line.
func deployment(name, account, container string) string {
	return fmt.Sprintf("kind: Deployment\nmetadata: {name: %s, namespace: a}\n"+
		"spec: {template: {spec: {serviceAccountName: %s, containers: [{name: c%s}]}}}\n", name, account, container)
}

const (
	backfill  = ", env: [{name: STARTUP_BACKFILL, value: '1'}]"
	webhook   = ", env: [{name: STARTUP_WEBHOOK, value: '1'}]"
	foreign   = ", env: [{name: STARTUP_TIMEOUT, value: '30'}]"
	elsewhere = ", envFrom: [{configMapRef: {name: x}}]"
	initPods  = "kind: DaemonSet\nmetadata: {name: init, namespace: a}\nspec: {template: {metadata: {labels: {startup.k8s.io/component: init}}}}\n"
)

// Only nodetaintshandler's Deployment is read, which its name or its ServiceAccount identifies.
// The folder with its manifests also has a Deployment for a test.
func TestSeedNodetaintshandlerConvertReadsItsDeployment(t *testing.T) {
	nginx := deployment("nginx", "default", "")
	for name, c := range map[string]struct {
		objects  []string
		backfill bool
	}{
		"by name":                   {[]string{deployment(handlerName, "x", backfill), nginx}, true},
		"by name, last":             {[]string{nginx, deployment(handlerName, "x", backfill)}, true},
		"by ServiceAccount":         {[]string{deployment("x", handlerName, backfill), nginx}, true},
		"by its variables":          {[]string{nginx, deployment("x", "x", backfill)}, true},
		"beside other variables":    {[]string{deployment(handlerName, "x", webhook), deployment("x", "x", foreign)}, false},
		"beside its variables":      {[]string{deployment(handlerName, "x", webhook), deployment("x", "x", backfill)}, false},
		"beside variables of a map": {[]string{deployment("x", "x", elsewhere), deployment("y", handlerName, backfill)}, true},
		"without variables":         {[]string{deployment(handlerName, handlerName, ""), nginx}, false},
		"with a copy":               {[]string{deployment(handlerName, "x", backfill), deployment("x", handlerName, "")}, true},
		"only the DaemonSet":        {[]string{nginx, initPods}, false},
	} {
		r := NodeTaintsHandler(Source{Name: "x", Data: []byte(strings.Join(c.objects, "---\n"))}, "")
		if len(r.Gates) != 1 {
			t.Errorf("%s: %d gates:\n%s", name, len(r.Gates), findingsText(r))
			continue
		}
		if got := r.Gates[0].NodeGate.Spec.ExistingNodes == v1alpha1.ExistingCloseIfIdle; got != c.backfill {
			t.Errorf("%s: backfill %v, want %v:\n%s", name, got, c.backfill, findingsText(r))
		}
	}
}

func TestSeedNodetaintshandlerConvertRefusesOtherDeployments(t *testing.T) {
	const several = "the Deployments in lines 1 and 5 both set variables of nodetaintshandler (STARTUP_... or envFrom): remove the one that does not run it"
	checkRejections(t, func(s Source) *Result { return NodeTaintsHandler(s, "") }, ".yaml", map[string]rejection{
		"nginx":                {deployment("nginx", "default", ""), 0, "neither a Deployment nor"},
		"nginx, variables":     {deployment("nginx", "default", ", env: [{name: A, value: b}]"), 0, "neither a Deployment nor"},
		"two with its name":    {deployment(handlerName, "x", backfill) + "---\n" + deployment(handlerName, "x", webhook), 5, several},
		"two by variables":     {deployment("x", "x", backfill) + "---\n" + deployment("y", "y", foreign), 5, several},
		"one may set them":     {deployment("x", "x", backfill) + "---\n" + deployment("y", "y", elsewhere), 5, several},
		"not a list":           {deployment(handlerName, "x", ", env: {STARTUP_BACKFILL: '1'}"), 3, "not a list"},
		"not a variable":       {deployment(handlerName, "x", ", env: [STARTUP_BACKFILL=1]"), 3, "not a mapping"},
		"a variable elsewhere": {deployment("x", "x", foreign), 3, "STARTUP_TIMEOUT is unknown"},
	})
}
