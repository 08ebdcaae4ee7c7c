// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/release"
)

// Options say what is to be uninstalled.
type Options struct {
	// Namespace and ServiceAccount are those of nodegate.
	Namespace, ServiceAccount string
	// DryRun says how much of it is done.
	DryRun release.DryRun
	// Out is told, line by line, of what was done.
	Out io.Writer
	// Progress is told of nodes (see release.Options).
	Progress func(done, of int)
}

// ErrIncomplete means that a node could not be made to forget its gates; which, and
// why, has been told. All else is gone.
var ErrIncomplete = errors.New("not every node could be released: see above, and release them when that is mended")

// Run uninstalls nodegate. What is not there any more is passed over, so that it
// can be interrupted at any point, and run again.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	left, err := remaining(o.Namespace, o.ServiceAccount)
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(unhurried(config))
	if err != nil {
		return fmt.Errorf("creating a client for metadata: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for discovery: %w", err)
	}
	u := &uninstaller{Options: o, config: config, objects: objects, kinds: kinds, remaining: left, told: make(map[object]bool)}
	// Until the very end, each step leaves a cluster that works, and in which the
	// next one can be done.
	for _, step := range []func(context.Context) error{
		u.isHere, u.endBirths, u.deleteGates, u.release, u.stopController, u.releaseAgain, u.deleteParameter, u.deleteRemaining, u.deleteDefinition, u.deleteNamespace,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return errors.New("stopped before everything was done; run it again to go on")
			}
			return err
		}
	}
	if u.incomplete {
		return ErrIncomplete
	}
	if o.DryRun == release.DryRunNone || !u.said {
		u.say("Nothing of nodegate is left in the cluster.")
	}
	return nil
}

// unhurried has requests wait for the API server alone.
func unhurried(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

type uninstaller struct {
	Options
	config  *rest.Config
	objects metadata.Interface
	kinds   discovery.DiscoveryInterface
	// remaining are the objects that go when nothing is left for them to do.
	remaining []object
	// told are the objects that a dry run has told of, and said whether anything was
	// told.
	told map[object]bool
	said bool
	// incomplete is true if a node was not released the last time.
	incomplete bool
}

func (u *uninstaller) say(format string, args ...any) {
	u.said = true
	_, _ = fmt.Fprintf(u.Out, format+"\n", args...) // what was done is done, told or not
}

// delete deletes objects, in their order.
func (u *uninstaller) delete(ctx context.Context, objects ...object) error {
	for i := range objects {
		o := &objects[i]
		if u.told[*o] { // in a dry run it is still there
			continue
		}
		switch err := u.deleteOne(ctx, o); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("deleting %s: %w", o, err)
		default:
			u.told[*o] = u.DryRun != release.DryRunNone
			u.say("%s deleted%s", o, u.DryRun.Suffix())
		}
	}
	return nil
}

// deleteOne fails with NotFound if there is no such object, or no such kind.
func (u *uninstaller) deleteOne(ctx context.Context, o *object) error {
	client := u.objects.Resource(o.resource()).Namespace(o.namespace)
	if u.DryRun == release.DryRunClient {
		_, err := client.Get(ctx, o.name, metav1.GetOptions{})
		return err
	}
	background := metav1.DeletePropagationBackground
	return client.Delete(ctx, o.name, metav1.DeleteOptions{DryRun: u.DryRun.Server(), PropagationPolicy: &background})
}

// list lists the objects of a kind. Of a kind that there is not there are none.
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

// deleteAll deletes all objects of a kind.
func (u *uninstaller) deleteAll(ctx context.Context, gvk schema.GroupVersionKind, namespace, selector string) error {
	o := object{GroupVersionKind: gvk, namespace: namespace}
	items, err := u.list(ctx, o.resource(), namespace, selector)
	if err != nil {
		return err
	}
	for i := range items {
		o.name = items[i].Name
		if err := u.delete(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// until waits until something is so. In a dry run it is not waited for.
func (u *uninstaller) until(ctx context.Context, limit time.Duration, so func(context.Context) (bool, error)) error {
	if u.DryRun != release.DryRunNone {
		return nil
	}
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, limit, true, so)
}

// endBirths has no more gates close on new nodes. The policy itself and its second
// binding stay until the parameter is gone (see birth.yaml).
func (u *uninstaller) endBirths(ctx context.Context) error { return u.delete(ctx, birthBindings...) }

// deleteGates deletes the gates. A controller that runs opens what they hold.
func (u *uninstaller) deleteGates(ctx context.Context) error {
	return u.deleteAll(ctx, v1alpha1.GroupVersion.WithKind("NodeGate"), "", "")
}

// release releases all nodes: before anything else is taken away that could have
// opened them, so that they are open whatever stops this.
func (u *uninstaller) release(ctx context.Context) error {
	report, err := release.Run(ctx, u.config, release.Options{Namespace: u.Namespace, DryRun: u.DryRun, Force: true, Progress: u.Progress})
	if report == nil {
		return err
	}
	if report.Remarks = nil; len(report.Nodes) > 0 {
		u.say("%s", strings.TrimSuffix(report.Text(), "\n"))
	}
	u.incomplete = !report.Complete()
	return err
}

// releaseAgain releases what was closed in the meantime. Now nobody is there any
// more who could.
func (u *uninstaller) releaseAgain(ctx context.Context) error {
	if u.DryRun != release.DryRunNone {
		return nil // it would say the same again
	}
	return u.release(ctx)
}

// Limits of what is waited for.
const (
	// stopLimit is how long the controller's pods may take to end, and its lease to
	// run out.
	stopLimit = 2 * time.Minute
	// settleLimit is how long the API server may take to follow what was deleted.
	settleLimit = time.Minute
)

// Labels that nodegate's workloads have in common.
const workloads = "app.kubernetes.io/name=nodegate"

// stopController deletes what runs the controller, and waits until it has ended.
func (u *uninstaller) stopController(ctx context.Context) error {
	if err := u.deleteAll(ctx, schema.FromAPIVersionAndKind("apps/v1", "Deployment"), u.Namespace, workloads); err != nil {
		return err
	}
	var why, said string
	err := u.until(ctx, stopLimit, func(ctx context.Context) (bool, error) {
		pods, err := u.list(ctx, corev1.SchemeGroupVersion.WithResource("pods"), u.Namespace, workloads)
		if err != nil {
			return false, err
		}
		running, err := release.Running(ctx, u.config, u.Namespace)
		if err != nil {
			return false, err
		}
		why = fmt.Sprintf("it has %d pods in namespace %s", len(pods), u.Namespace)
		if running {
			why = fmt.Sprintf("somebody holds the Lease %s/%s", u.Namespace, v1alpha1.LeaseName)
		}
		ended := len(pods) == 0 && !running
		if !ended && why != said {
			u.say("waiting for nodegate to end: %s", why)
			said = why
		}
		return ended, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("nodegate still runs (%s): end it, and run this again", why)
	}
	return err
}

// deleteParameter deletes the parameter of the birth policy. While its guard is in
// force, nobody can.
func (u *uninstaller) deleteParameter(ctx context.Context) error {
	if err := u.delete(ctx, parametersGuard...); err != nil {
		return err
	}
	if u.DryRun == release.DryRunServer { // the guard is still there, and would refuse
		return nil
	}
	parameter := named("v1", "PodTemplate", v1alpha1.BirthParameter)
	parameter.namespace = u.Namespace
	if u.DryRun == release.DryRunClient {
		return u.delete(ctx, parameter)
	}
	var last error
	if err := u.until(ctx, settleLimit, func(ctx context.Context) (bool, error) {
		last = u.delete(ctx, parameter)
		return last == nil || !apierrors.IsForbidden(last), nil
	}); err != nil && last == nil {
		return err
	}
	return last
}

func (u *uninstaller) deleteRemaining(ctx context.Context) error {
	return u.delete(ctx, u.remaining...)
}

func (u *uninstaller) deleteDefinition(ctx context.Context) error {
	if err := u.delete(ctx, definition); err != nil {
		return err
	}
	err := u.until(ctx, settleLimit, func(ctx context.Context) (bool, error) {
		_, err := u.objects.Resource(definition.resource()).Get(ctx, definition.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%s is still there: see what keeps it (kubectl get nodegates; somebody may create them anew), and run this again", &definition)
	}
	return err
}
