// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
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
	"github.com/nodegate/nodegate/internal/gate"
)

// situation is what there is in the cluster that would close nodes again.
type situation struct {
	namespace string
	// gates are the names of the NodeGates that exist.
	gates map[string]bool
	// running tells whether a controller works; births, whether the API server
	// closes gates on new nodes.
	running, births bool
	// gatesUnknown and runningUnknown say why that could not be found out.
	gatesUnknown, runningUnknown error
}

// leaseGrace is added to the time for which a lease is good: who asks may have
// another clock than who renews.
const leaseGrace = 15 * time.Second

// survey finds out what there is. What there is not, as in a cluster that knows no
// NodeGates, is no error; neither is what may not be read.
func survey(ctx context.Context, config *rest.Config, namespace string) (*situation, error) {
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for metadata: %w", err)
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	s := &situation{namespace: namespace, gates: make(map[string]bool)}
	list, err := objects.Resource(v1alpha1.Resource).List(ctx, metav1.ListOptions{})
	switch {
	case err == nil:
		for i := range list.Items {
			s.gates[list.Items[i].Name] = true
		}
	case !apierrors.IsNotFound(err): // an API server without them knows no such kind
		s.gatesUnknown = fmt.Errorf("listing NodeGates: %w", err)
	}
	s.running, s.runningUnknown = running(ctx, core, namespace)
	binding, err := core.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, birthBinding, metav1.GetOptions{})
	if err == nil { // who may not read it is told nothing of it
		s.births = s.hasGates(ctx, core, binding)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// birthBinding is the MutatingAdmissionPolicyBinding by which the API server closes
// gates on new nodes.
const birthBinding = "nodegate-birth"

// Running tells whether a controller works: whether somebody holds its lease.
func Running(ctx context.Context, config *rest.Config, namespace string) (bool, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, fmt.Errorf("creating a client: %w", err)
	}
	return running(ctx, core, namespace)
}

func running(ctx context.Context, core kubernetes.Interface, namespace string) (bool, error) {
	lease, err := core.CoordinationV1().Leases(namespace).Get(ctx, v1alpha1.LeaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the Lease %s/%s: %w", namespace, v1alpha1.LeaseName, err)
	}
	return Held(lease, time.Now()), nil
}

// Held tells whether somebody holds a controller's lease and renews it.
func Held(l *coordinationv1.Lease, now time.Time) bool {
	spec := &l.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil {
		return false
	}
	var good time.Duration
	if spec.LeaseDurationSeconds != nil {
		good = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	return now.Before(spec.RenewTime.Add(good + leaseGrace))
}

// hasGates reports whether the birth policy has anything to go by.
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

// judge says why these nodes should not be released, if so, and otherwise what is
// to be known of it.
func (s *situation) judge(nodes []*gate.Node, o *Options) (remarks []string, refusal error) {
	living, files := s.living(nodes, o)
	switch {
	case o.Force:
	case s.gatesUnknown != nil && (s.running || s.runningUnknown != nil):
		return nil, unknown(s.gatesUnknown)
	case s.runningUnknown != nil && len(living)+len(files) > 0:
		return nil, unknown(s.runningUnknown)
	case s.running && len(living) > 0:
		return nil, fmt.Errorf("nodegate is running and has not been told to let go: it would close nodes that are new once more, and leave the others to existingNodes. "+
			"Delete the gates instead, which opens all that they hold (kubectl delete nodegates %s); --force releases the nodes all the same", strings.Join(living, " "))
	case s.running && len(files) > 0:
		return nil, fmt.Errorf("nodegate is running, and may still read these gates from files: %s. Remove them there, which opens all that they hold; --force releases the nodes all the same", listed(files))
	}
	switch {
	case len(living) == 0:
	case s.runningUnknown != nil:
		remarks = append(remarks, fmt.Sprintf("whether nodegate runs is not known (%v). If it does, its gates (%s) may close these nodes again", s.runningUnknown, listed(living)))
	case s.running: // by force
		remarks = append(remarks, fmt.Sprintf("nodegate runs. Its gates (%s) close nodes that are new once more, and treat the others as existingNodes has it", listed(living)))
	default:
		remarks = append(remarks, fmt.Sprintf("nodegate does not run. When it does again, it takes these nodes for nodes that its gates (%s) have not seen: see existingNodes", listed(living)))
	}
	if s.births {
		remarks = append(remarks, "new nodes go on being closed: 'kubectl delete mutatingadmissionpolicybinding "+birthBinding+"' ends that")
	}
	return remarks, nil
}

func unknown(err error) error {
	return fmt.Errorf("whether nodegate would close these nodes again is not known: %w; --force releases them all the same", err)
}

// living are the gates among those to be released that exist, and files those that
// were read from files.
func (s *situation) living(nodes []*gate.Node, o *Options) (living, files []string) {
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
