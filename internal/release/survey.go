// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gate"
)

// situation contains what could close gates on released nodes again.
type situation struct {
	namespace string
	// gates contains the names of the existing NodeGates.
	gates map[string]bool
	// running specifies whether a controller is running, and birthActive whether the API
	// server closes gates on new nodes.
	running, birthActive bool
	// gatesUnknown and runningUnknown are the errors that occurred when reading this.
	gatesUnknown, runningUnknown error
}

// survey reads the situation. It is not an error if something does not exist, such as
// the definition of NodeGates, or must not be read.
func survey(ctx context.Context, config *rest.Config, objects metadata.Interface, o *Options) (*situation, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	s := &situation{namespace: o.Namespace}
	s.gates, s.gatesUnknown = existingGates(ctx, objects)
	s.running, s.runningUnknown = runs(ctx, core, o)
	binding, err := core.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, admission.BirthPolicy, metav1.GetOptions{})
	if err == nil { // without permission to read it, there is no remark
		s.birthActive = s.hasGates(ctx, core, binding)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// runs reports whether a controller is running. If no Lease shows this, it returns an error if the
// controller may be running in another namespace. By force, the answer is only displayed, so it does
// not wait: it returns an error if only observing the Lease would show the answer.
func runs(ctx context.Context, core kubernetes.Interface, o *Options) (bool, error) {
	skipped := false
	lease, running, err := observeLease(ctx, core, o.Namespace, func(l *coordinationv1.Lease) bool {
		recent := recentlyRenewed(l)
		if skipped = o.Force && !recent; !recent && !skipped {
			o.reportWaiting(l)
		}
		return recent || skipped
	})
	if err != nil || running && !skipped {
		return err == nil, err
	}
	_, err = CheckNamespace(ctx, core, o.Namespace)
	if lease != nil && apierrors.IsForbidden(err) { // the Lease makes another namespace unlikely
		err = nil
	}
	if err == nil && skipped {
		err = fmt.Errorf("by this machine's clock, the Lease %s/%s is not renewed", o.Namespace, v1alpha1.LeaseName)
	}
	return false, err
}

// reportWaiting reports that only observing a Lease will show whether a controller is running.
func (o *Options) reportWaiting(l *coordinationv1.Lease) {
	if o.Waiting == nil {
		return
	}
	o.Waiting(fmt.Sprintf("waiting for %s to find out whether nodegate is running: %q holds the Lease %s/%s, but last renewed it at %s, and it is %s by this machine's clock; --force does not wait",
		observation(l), *l.Spec.HolderIdentity, o.Namespace, v1alpha1.LeaseName, l.Spec.RenewTime.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339)))
}

// hasGates reports whether the birth policy's parameter contains gates.
func (s *situation) hasGates(ctx context.Context, core kubernetes.Interface, b *admissionregistrationv1.MutatingAdmissionPolicyBinding) bool {
	namespace := s.namespace
	if p := b.Spec.ParamRef; p != nil && p.Namespace != "" {
		namespace = p.Namespace
	}
	parameter, err := core.CoreV1().PodTemplates(namespace).Get(ctx, v1alpha1.BirthParameter, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	return err != nil || len(parameter.Template.Spec.SchedulingGates) > 0
}

// judge returns an error if these nodes should not be released, and otherwise remarks.
func (s *situation) judge(nodes []*gate.Node, o *Options) (remarks []string, refusal error) {
	existing, files := s.existing(nodes, o)
	switch {
	case o.Force:
	case s.gatesUnknown != nil && (s.running || s.runningUnknown != nil):
		return nil, unknown(cmp.Or(s.runningUnknown, s.gatesUnknown))
	case s.runningUnknown != nil && len(existing)+len(files) > 0:
		return nil, unknown(s.runningUnknown)
	case s.running && len(existing) > 0:
		return nil, fmt.Errorf("nodegate is running and the gates still exist: they would close again on nodes that were created after them, and treat older nodes according to existingNodes. "+
			"Delete the gates instead, which opens them on all nodes (kubectl delete nodegates %s), or use --force to release the nodes anyway", strings.Join(existing, " "))
	case s.running && len(files) > 0:
		return nil, fmt.Errorf("nodegate is running, and may still read these gates from files: %s. Remove the gates from the files, which opens them on all nodes, or use --force to release the nodes anyway", listed(files))
	}
	switch {
	case len(existing) == 0:
	case s.runningUnknown != nil:
		remarks = append(remarks, fmt.Sprintf("it is unknown whether nodegate is running (%v). If it is, its gates (%s) may close on these nodes again", s.runningUnknown, listed(existing)))
	case s.running: // by force
		remarks = append(remarks, fmt.Sprintf("nodegate is running. Its gates (%s) close again on nodes that were created after them, and treat older nodes according to existingNodes", listed(existing)))
	default:
		remarks = append(remarks, fmt.Sprintf("nodegate is not running. When it runs again, its gates (%s) treat these nodes as if they had not seen them before: see existingNodes", listed(existing)))
	}
	if s.birthActive {
		remarks = append(remarks, "gates still close on new nodes: to stop this, run 'kubectl delete mutatingadmissionpolicybinding "+admission.BirthPolicy+"'")
	}
	return remarks, nil
}

func unknown(err error) error {
	var e *elsewhereError
	if errors.As(err, &e) {
		return fmt.Errorf("%s, and may be running there: use --namespace=%s, or --force to release the nodes anyway", e.fact(), e.found)
	}
	return fmt.Errorf("it is unknown whether gates would close on these nodes again: %w; use --force to release the nodes anyway", err)
}

// existing returns the gates to release that still exist: the names of NodeGates, and
// the names of gates that were declared in files.
func (s *situation) existing(nodes []*gate.Node, o *Options) (existing, files []string) {
	exist, fromFiles := make(map[string]bool), make(map[string]bool)
	for _, n := range nodes {
		for name, raw := range n.Records {
			r, err := gate.ParseRecord(raw)
			switch {
			case !o.names(name):
			case err == nil && r.Source == v1alpha1.SourceFiles:
				fromFiles[name] = true
			case s.gates[name]:
				exist[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(exist)), slices.Sorted(maps.Keys(fromFiles))
}
