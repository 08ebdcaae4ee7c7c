// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/report"
)

// testdata contains the expected short report on nodes with different histories.
func TestText(t *testing.T) {
	const repair = "metadata: {name: repair}\nspec:\n  taint: {key: example.com/repair, effect: NoSchedule}\n  closeWhen: [{name: broken, label: {key: broken}}]"
	gates := append(clitest.Lives[0].Gates(t), clitest.Declare(t, repair)...)
	f := &report.Facts{
		Time: clitest.Now, Gates: gateset.Reported(gates), PodsRead: true, Within: time.Hour,
		Unread: []string{"listing DaemonSets: forbidden"},
	}
	var facts []gate.Facts
	pods := make(map[string]*gate.PodList)
	for _, life := range clitest.Lives {
		one, all := life.Facts()
		one.Node.Name = life.Name
		one.Node.Labels = map[string]string{"team": life.Name[:1], corev1.LabelTopologyZone: "z"}
		facts = append(facts, one)
		pods[life.Name] = all
	}
	f.Trace(facts, pods, "team")
	clitest.Golden(t, "fleet.txt", report.New(f).Text())
	nothing := &report.Facts{Time: clitest.Now, Gates: gateset.Reported(nil), Within: time.Hour}
	clitest.Golden(t, "nothing.txt", report.New(nothing).Text())
}
