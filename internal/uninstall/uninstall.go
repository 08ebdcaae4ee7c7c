// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/release"
)

// Options specify what to uninstall.
type Options struct {
	// Namespace and ServiceAccount are those of nodegate.
	Namespace, ServiceAccount string
	// DryRun specifies whether changes are sent and persisted.
	DryRun release.DryRun
	// Out receives a line for each change.
	Out io.Writer
	// Progress is called when nodes are released. See release.Options.
	Progress func(done, of int)
}

// ErrIncomplete is returned when a node could not be cleaned up: it was not released, or an
// announcement of its shutdown stays. The reason has been written to Options.Out. Everything else
// has been removed.
var ErrIncomplete = errors.New("some nodes could not be cleaned up: fix the errors above, and run the command again")

// Run uninstalls nodegate. It skips what no longer exists, so that it can be interrupted
// at any point and run again.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	left, err := remaining(o.Namespace, o.ServiceAccount)
	if err != nil {
		return err
	}
	config = restconfig.Unlimited(config)
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for metadata: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for discovery: %w", err)
	}
	u := &uninstaller{Options: o, config: config, core: core, objects: objects, kinds: kinds, remaining: left, reported: make(map[object]bool)}
	// Until the end, each step leaves a working cluster in which the next step is possible.
	for _, step := range []func(context.Context) error{
		u.checkNamespace, u.stopBirthClosing, u.reportNodePools, u.deleteGates, u.release, u.stopController, u.releaseAgain, u.deleteParameters, u.deleteAgent, u.removeAnnouncements, u.deleteRemaining, u.deleteDefinition, u.deleteNamespace,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return errors.New("stopped before completion; run the command again to continue")
			}
			return err
		}
	}
	if u.incomplete {
		return ErrIncomplete
	}
	if o.DryRun == release.DryRunNone || !u.hasReported {
		u.report("nodegate is no longer in the cluster.")
	}
	return nil
}

type uninstaller struct {
	Options
	config  *rest.Config
	core    kubernetes.Interface
	objects metadata.Interface
	kinds   discovery.DiscoveryInterface
	// remaining are the objects to delete when they are no longer needed.
	remaining []object
	// reported are the objects that a dry run has reported. hasReported specifies whether
	// anything was reported.
	reported    map[object]bool
	hasReported bool
	// birthStopped is when the birth bindings had been deleted. It is zero if the policy had no
	// parameter, so that it closed no gate: a parameter is deleted only after the wait that
	// follows.
	birthStopped time.Time
	// incomplete is true if the last attempt to release nodes did not release all, or if an
	// announcement of a shutdown could not be removed.
	incomplete bool
}

// report writes one or more lines. Names and errors from the cluster cannot control a terminal.
func (u *uninstaller) report(format string, args ...any) {
	u.hasReported = true
	_, _ = fmt.Fprintln(u.Out, printer.Text(fmt.Sprintf(format, args...))) // the change has been made, even if it cannot be reported
}

// delete deletes objects in the given order.
func (u *uninstaller) delete(ctx context.Context, objects ...object) error {
	for i := range objects {
		o := &objects[i]
		if u.reported[*o] { // in a dry run, it still exists
			continue
		}
		switch err := u.deleteOne(ctx, o); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("deleting %s: %w", o, err)
		default:
			u.reported[*o] = u.DryRun != release.DryRunNone
			u.report("%s deleted%s", o, u.DryRun.Suffix())
			if *o == anchor {
				u.report("  (before you install nodegate again, restart all API servers: see 'Installing again' in docs/uninstall.md)")
			}
		}
	}
	return nil
}

// deleteOne deletes an object. It returns a NotFound error if the object or its kind does
// not exist.
func (u *uninstaller) deleteOne(ctx context.Context, o *object) error {
	client := u.objects.Resource(o.resource()).Namespace(o.namespace)
	if u.DryRun == release.DryRunClient {
		_, err := client.Get(ctx, o.name, metav1.GetOptions{})
		return err
	}
	background := metav1.DeletePropagationBackground
	return client.Delete(ctx, o.name, metav1.DeleteOptions{DryRun: u.DryRun.Server(), PropagationPolicy: &background})
}

// list lists the objects of a kind. If the kind does not exist, the list is empty.
func (u *uninstaller) list(ctx context.Context, r schema.GroupVersionResource, namespace, selector string) ([]metav1.PartialObjectMetadata, error) {
	list, err := u.objects.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", r.Resource, err)
	}
	return list.Items, nil
}

// deleteAll deletes all objects of a kind, in all namespaces if none is given.
func (u *uninstaller) deleteAll(ctx context.Context, gvk schema.GroupVersionKind, namespace, selector string) error {
	o := object{GroupVersionKind: gvk, namespace: namespace}
	items, err := u.list(ctx, o.resource(), namespace, selector)
	if err != nil {
		return err
	}
	for i := range items {
		o.namespace, o.name = items[i].Namespace, items[i].Name
		if err := u.delete(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// poll waits until a condition is true. In a dry run, it does not wait.
func (u *uninstaller) poll(ctx context.Context, limit time.Duration, so func(context.Context) (bool, error)) error {
	if u.DryRun != release.DryRunNone {
		return nil
	}
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, limit, true, so)
}

// stopBirthClosing stops the closing of gates on new nodes. The policy itself and its
// second binding are deleted after the parameters. See birth.yaml.
func (u *uninstaller) stopBirthClosing(ctx context.Context) error {
	birth := &u.parameters()[0]
	_, err := u.objects.Resource(birth.resource()).Namespace(birth.namespace).Get(ctx, birth.name, metav1.GetOptions{})
	if err := u.delete(ctx, birthBindings...); err != nil {
		return err
	}
	if !apierrors.IsNotFound(err) { // if it is unknown, it may exist
		u.birthStopped = time.Now() // another program may have deleted the bindings just before
	}
	return nil
}

// parameters returns the parameters of the birth policy and of the tolerations policy.
func (u *uninstaller) parameters() []object {
	parameters := []object{named("v1", "PodTemplate", v1alpha1.BirthParameter), named("v1", "PodTemplate", v1alpha1.TolerationsParameter)}
	for i := range parameters {
		parameters[i].namespace = u.Namespace
	}
	return parameters
}

// deleteGates deletes the gates. A running controller then opens them.
func (u *uninstaller) deleteGates(ctx context.Context) error {
	return u.deleteAll(ctx, v1alpha1.GroupVersion.WithKind("NodeGate"), "", "")
}

// release releases all nodes. It runs before anything that could open gates is deleted,
// so that the nodes are open even if uninstalling stops.
func (u *uninstaller) release(ctx context.Context) error {
	report, err := release.Run(ctx, u.config, release.Options{Namespace: u.Namespace, DryRun: u.DryRun, Force: true, Progress: u.Progress})
	if report == nil {
		return err
	}
	if report.Remarks = nil; len(report.Nodes) > 0 {
		u.report("%s", strings.TrimSuffix(report.Text(), "\n"))
	}
	u.incomplete = !report.Complete()
	return err
}

// releaseAgain releases nodes on which a gate has closed meanwhile: by the controller, or by
// an API server that did not yet apply the deletion of the birth bindings. After this,
// nothing can close a gate.
func (u *uninstaller) releaseAgain(ctx context.Context) error {
	if u.DryRun != release.DryRunNone {
		return nil // the output would be the same
	}
	if left := time.Until(u.birthStopped.Add(birthDelay)); left > 0 {
		u.report("waiting for all API servers to stop closing gates on new nodes")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(left):
		}
	}
	return u.release(ctx)
}

// birthDelay is the time after which no API server closes gates on new nodes any more. API
// servers refresh their policies once per second, after their watches have received the
// deletion, and complete requests that they have already admitted. A request in a dry run
// could not replace the wait, because only one of the API servers receives it.
const birthDelay = 5 * time.Second

// settleLimit is the timeout for deletions to take effect in the API server.
const settleLimit = time.Minute

// deleteParameters deletes the parameters of the birth policy and the tolerations policy.
// Their guard, which rejects this, is deleted first.
func (u *uninstaller) deleteParameters(ctx context.Context) error {
	if err := u.delete(ctx, parametersGuard...); err != nil {
		return err
	}
	if u.DryRun == release.DryRunServer { // the guard still exists, and would reject it
		return nil
	}
	parameters := u.parameters()
	if u.DryRun == release.DryRunClient {
		return u.delete(ctx, parameters...)
	}
	var last error
	if err := u.poll(ctx, settleLimit, func(ctx context.Context) (bool, error) {
		last = u.delete(ctx, parameters...)
		return last == nil || !apierrors.IsForbidden(last), nil
	}); err != nil && last == nil {
		return err
	}
	return last
}

// deleteAgent deletes the node agent, which may be in any namespace.
func (u *uninstaller) deleteAgent(ctx context.Context) error {
	const agent = v1alpha1.AppAgent
	const labelled = v1alpha1.AppLabel + "=" + agent
	for _, gvk := range []schema.GroupVersionKind{
		schema.FromAPIVersionAndKind("apps/v1", "DaemonSet"), schema.FromAPIVersionAndKind("v1", "ServiceAccount"),
		schema.FromAPIVersionAndKind("v1", "ResourceQuota"),
	} {
		if err := u.deleteAll(ctx, gvk, "", labelled); err != nil {
			return err
		}
	}
	const rbac, admission = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
	return u.delete(ctx, named(rbac, "ClusterRoleBinding", agent), named(rbac, "ClusterRole", agent),
		named(admission, "ValidatingAdmissionPolicyBinding", agent), named(admission, "ValidatingAdmissionPolicy", agent))
}

// warmUp is the label selector of the chart's DaemonSet image-warm-up. It is not deleted by
// name, because the namespace may contain one of the same name that is not nodegate's.
const warmUp = v1alpha1.AppLabel + "=" + v1alpha1.AppImageWarmUp

func (u *uninstaller) deleteRemaining(ctx context.Context) error {
	if err := u.deleteAll(ctx, schema.FromAPIVersionAndKind("apps/v1", "DaemonSet"), u.Namespace, warmUp); err != nil {
		return err
	}
	return u.delete(ctx, u.remaining...)
}
