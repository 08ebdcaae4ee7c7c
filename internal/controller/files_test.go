// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/reflector"
	"github.com/nodegate/nodegate/internal/readinessrules"
)

// The files of a leader that took over may be older than those of the previous leader, because kubelets
// update mounted ConfigMaps minutes apart. For a while, a gate that is not in them does not count as
// deleted: neither at once, although the files have been read before the takeover, nor later. The same
// applies if the watch of NodeGates is late.
func TestGatesAreIncompleteAfterATakeover(t *testing.T) {
	for _, test := range []struct {
		source   string
		tookOver bool
		late     error         // the result of CatchUp
		standBy  time.Duration // from the start to the takeover
		rules    time.Duration // for which lists of NodeReadinessRules take
		want     time.Duration // for which the gate remains
	}{
		{source: v1alpha1.SourceFiles, tookOver: true, want: filesSettleAfter},
		{source: v1alpha1.SourceFiles, tookOver: true, standBy: 5 * time.Second, want: filesSettleAfter},
		{source: v1alpha1.SourceFiles, tookOver: true, standBy: 5 * time.Second, rules: 300 * time.Millisecond, want: filesSettleAfter},
		{source: v1alpha1.SourceFiles},
		{source: v1alpha1.SourceCRD, tookOver: true},
		{source: v1alpha1.SourceCRD, tookOver: true, late: errors.New("not observed"), want: reflector.SilentAfter},
	} {
		synctest.Test(t, func(t *testing.T) {
			entry, err := admission.NewEntry(controllertest.Gate("gate"))
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t)
			w.source, w.tookOver, w.catchUpErr = test.source, test.tookOver, test.late
			w.add(1, func(_ int, n *gate.Node) {
				isClosed(n, "gate", v1alpha1.ReasonBirth)
				n.Records["gate"] = strings.Replace(n.Records["gate"], v1alpha1.SourceCRD, test.source, 1)
			})
			synced := time.Now().Add(2 * time.Second) // the files have been read by then
			w.unsyncedFeeds = func() []string {
				if time.Now().Before(synced) {
					return []string{"nodes"}
				}
				return nil
			}
			w.standBy = func() {
				parameter := admission.Parameter("nodegate-system", test.source, []admission.Entry{entry})
				if err := w.c.client.Create(t.Context(), parameter); err != nil {
					t.Fatal(err)
				}
				controllertest.Pass(test.standBy)
			}
			var log controllertest.LogLines
			defer w.start(log.Logger(), listingRules(func() ([]unstructured.Unstructured, error) {
				<-time.After(test.rules)
				return nil, nil
			}))()
			for waited := time.Duration(0); waited < test.want-10*time.Second; waited += 10 * time.Second {
				controllertest.Pass(10 * time.Second)
				if w.closed() != 1 || w.node("n0000").Records["gate"] == "" {
					t.Fatalf("%+v: after %s the gate is open, want it closed for %s", test, waited, test.want)
				}
				w.wantParameters("after "+waited.String(), "map[gate:"+controllertest.TaintKey+"]")
			}
			if logged := log.Count("do not count as deleted yet") == 1; logged != (test.want > 0) {
				t.Errorf("%+v: the log is %v", test, log.All())
			}
			controllertest.Pass(20*time.Second + readinessrules.Interval)
			if w.closed() != 0 || w.node("n0000").Records["gate"] != "" {
				t.Errorf("%+v: the deleted gate is not open a minute after %s", test, test.want)
			}
			w.wantParameters("in the end", "map[]")
		})
	}
}
