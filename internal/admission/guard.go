// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// ErrUnclear is returned when the answer to a probe does not show whether a guard
// is in force, because the API server did not evaluate the guards.
var ErrUnclear = errors.New("the API server did not answer")

// GuardProbe is a request that a guard must reject. It is sent in a dry run, as
// nodegate's own ServiceAccount, so it changes nothing even if it is allowed.
type GuardProbe struct {
	// Guard is the name of the policy that must reject the request.
	Guard string
	// Object is patched with Patch, or created if Patch is nil. If it is a NodeGate,
	// its status is patched.
	Object client.Object
	Patch  client.Patch
}

// Send sends the probe in a dry run and returns the API server's answer.
func (p *GuardProbe) Send(ctx context.Context, c client.Client) error {
	if p.Patch == nil {
		return c.Create(ctx, p.Object, client.DryRunAll)
	}
	if _, ok := p.Object.(*v1alpha1.NodeGate); ok {
		return c.Status().Patch(ctx, p.Object, p.Patch, client.DryRunAll)
	}
	return c.Patch(ctx, p.Object, p.Patch, client.DryRunAll, client.FieldOwner(v1alpha1.FieldManager))
}

// GuardProbes returns a probe for each guard that every installation has. Probes of
// the guards of Nodes need an existing Node, and the probe of the guard of NodeGates
// needs an existing NodeGate. If node or gate is "", as in a new cluster, those
// probes are omitted.
func GuardProbes(namespace, node, gate string) []GuardProbe {
	// The API server validates objects before it evaluates guards: this one is valid.
	template := Parameter(namespace, v1alpha1.SourceCRD, nil)
	template.Name = probePrefix + "parameters"
	probes := []GuardProbe{{Guard: ParametersPolicy, Object: template}}
	if gate != "" {
		probes = append(probes, GuardProbe{
			Guard:  AcknowledgePolicy,
			Object: &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: gate}},
			Patch:  client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":-2}}`)),
		})
	}
	if node == "" {
		return probes
	}
	patch := func(guard, metadata string) GuardProbe {
		return GuardProbe{
			Guard:  guard,
			Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
			Patch:  client.RawPatch(types.MergePatchType, []byte(`{"metadata":{`+metadata+`}}`)),
		}
	}
	return append(probes,
		patch(ConfinementPolicy, `"labels":{"nodegate.dev/probe":"true"}`),
		// No gate can have this name. RecordsPolicy rejects it even from nodegate.
		patch(RecordsPolicy, `"annotations":{"`+v1alpha1.RecordAnnotationPrefix+`Probe":"true"}`))
}

// Proved returns nil if err, the API server's answer to the probe, shows that the
// guard is in force. Otherwise, the returned error describes what to do. It wraps
// ErrUnclear if the answer shows nothing.
func (p *GuardProbe) Proved(err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("guard %s is not in force: the API server allowed a request that it must reject (a dry run); "+
			"check that ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding %s exist, with validationActions [Deny], "+
			"or apply the manifests of this version again", p.Guard, p.Guard)
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+p.Guard+"'"):
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("guard %s is not proved to be in force: something else rejected the request that it must reject (a dry run): %w", p.Guard, err)
	default:
		return fmt.Errorf("probing guard %s: %w: %w", p.Guard, ErrUnclear, err)
	}
}
