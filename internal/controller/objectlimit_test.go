// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gateset"
)

// A gate that needs more objects than are observed says so in its condition. Older gates are
// not affected.
func TestObjectsBeyondTheLimit(t *testing.T) {
	object := func(namespace string) v1alpha1.SignalSource {
		return v1alpha1.SignalSource{Object: &v1alpha1.ObjectSignal{Version: "v1", Kind: "Lease", Namespace: namespace, Expression: "has(object.spec)"}}
	}
	synctest.Test(t, func(t *testing.T) {
		older := controllertest.Gate("older", func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen = nil
			for i := range gateset.ObjectSourcesMax / 8 {
				signal := v1alpha1.Signal{Name: fmt.Sprintf("s%d", i)}
				for j := range 8 {
					signal.AnyOf = append(signal.AnyOf, v1alpha1.NamedSource{Name: fmt.Sprintf("s%d", j), SignalSource: object(fmt.Sprintf("ns-%d-%d", i, j))})
				}
				s.OpenWhen = append(s.OpenWhen, signal)
			}
		})
		younger := controllertest.Gate("a-younger", func(s *v1alpha1.NodeGateSpec) {
			s.OpenWhen = []v1alpha1.Signal{{Name: "s", SignalSource: object("another")}}
		})
		younger.CreationTimestamp = metav1.NewTime(older.CreationTimestamp.Add(time.Second))
		w := newWorld(t, older, younger)
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(10 * time.Second)
		c := meta.FindStatusCondition(w.stored("a-younger").Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonFeedsNotSynced || !strings.Contains(c.Message, "Lease.v1 in another") {
			t.Errorf("the younger gate: %+v", c)
		}
		if all := w.stored("older").Status.Conditions; !meta.IsStatusConditionTrue(all, v1alpha1.ConditionReady) {
			t.Errorf("the older gate is not Ready: %+v", all)
		}
	})
}
