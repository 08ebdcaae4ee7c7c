// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
)

// takes waits as long as the API server needs for a request. It returns an
// error if the client's time is over.
func takes(ctx context.Context, nanoseconds int64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(nanoseconds)):
		return nil
	}
}

// After probes have timed out, all gates are proved soon after the API server responds
// again, and a failed write is repeated as soon as otherwise.
func TestTimeoutsDelayLittle(t *testing.T) {
	failure := error(apierrors.NewInternalError(errors.New("etcd is full")))
	synctest.Test(t, func(t *testing.T) {
		b := newProving(t, 12, strconv.Itoa)
		controllertest.Pass(5 * time.Second)
		b.wantProved(t)

		b.took.Store(int64(time.Hour))
		b.writeFails.Store(&failure)
		edited := b.gates[0].DeepCopy()
		edited.Generation, edited.Spec.NodeSelector.MatchLabels = 2, map[string]string{"pool": "edited"}
		gates := append(slices.Clone(b.gates[1:]), edited)
		b.works(gates...)
		b.declare(gates...)
		controllertest.Pass(2 * time.Minute)

		b.took.Store(0)
		b.writeFails.Store(nil)
		controllertest.Pass(BirthLater)
		if want, err := admission.NewEntry(edited); err != nil || !b.entry(t, edited.Name).Equal(want) {
			t.Errorf("the parameter does not contain the edited gate after %v", BirthLater)
		}
		controllertest.Pass(time.Minute - BirthLater)
		b.wantProved(t)
	})
}

// The API server waits for a webhook that does not respond, and then creates the node without it.
// The probe waits longer, so the error shows what is wrong.
func TestWebhookThatDoesNotRespond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newProvingBy(t, admission.ByWebhook, 2, strconv.Itoa)
		b.works()
		b.took.Store(int64(admission.WebhookTimeout + 10*time.Millisecond))
		controllertest.Pass(2 * time.Minute) // the first probes may have been answered before
		for _, ng := range b.gates {
			if err := b.Proved(ng); err == nil || !strings.Contains(err.Error(), "has ready endpoints") {
				t.Errorf("gate %s: %v", ng.Name, err)
			}
		}
	})
}

// Probes that time out occupy the API server for at most a third of the time.
func TestSlowProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newProving(t, 12, strconv.Itoa)
		b.took.Store(int64(time.Hour))
		controllertest.Pass(2 * time.Minute) // the first probes may have been answered before
		before := b.probes.Load()
		controllertest.Pass(time.Hour)
		n := b.probes.Load() - before
		if took := time.Duration(n) * probeTimeout; n == 0 || took > time.Hour/3 {
			t.Errorf("%d probes in an hour", n)
		}
	})
}

// entry returns the gate's entry in the parameter.
func (p *proving) entry(t *testing.T, name string) admission.Entry {
	t.Helper()
	var have corev1.PodTemplate
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: "nodegate-system", Name: v1alpha1.BirthParameter}, &have); err != nil {
		t.Fatal(err)
	}
	return admission.Entries(&have)[name]
}
