// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/release"
)

// checkNamespace returns an error if nodegate is installed in another namespace. Its
// workloads there would remain without permissions, while uninstalling seemed complete.
func (u *uninstaller) checkNamespace(ctx context.Context) error {
	bound, err := release.CheckNamespace(ctx, u.core, u.Namespace)
	if bound || err != nil {
		return err
	}
	return u.checkLeftovers(ctx)
}

// checkLeftovers returns an error if objects that the controller has created exist only in another
// namespace: 'helm uninstall' leaves them. With the webhook, there are no parameters, but a Lease.
func (u *uninstaller) checkLeftovers(ctx context.Context) error {
	lease := named("coordination.k8s.io/v1", "Lease", v1alpha1.LeaseName)
	elsewhere := ""
	for _, objects := range [][]object{u.parameters(), {lease}} { // those of a kind
		all, err := u.list(ctx, objects[0].resource(), "", "")
		if err != nil {
			return fmt.Errorf("determining nodegate's namespace: %w", err)
		}
		for i := range all {
			switch found := &all[i]; {
			case !slices.ContainsFunc(objects, func(o object) bool { return o.name == found.Name }):
			case found.Namespace == u.Namespace:
				return nil
			default:
				elsewhere = cmp.Or(elsewhere, found.Namespace)
			}
		}
	}
	if elsewhere != "" {
		return release.InstalledIn(elsewhere, u.Namespace)
	}
	return nil
}

// deleteNamespace deletes nodegate's namespace if it contains nothing else, and waits until it no
// longer exists: until then, nothing can be created there.
func (u *uninstaller) deleteNamespace(ctx context.Context) error {
	namespace := named("v1", "Namespace", u.Namespace)
	if u.Namespace == metav1.NamespaceDefault || strings.HasPrefix(u.Namespace, "kube-") {
		return nil
	}
	switch found, err := u.objects.Resource(namespace.resource()).Get(ctx, u.Namespace, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading %s: %w", &namespace, err)
	case found.DeletionTimestamp != nil: // it is already being deleted
		return u.awaitNamespace(ctx, &namespace)
	}
	if u.DryRun != release.DryRunNone { // nodegate's own objects still exist
		u.report("namespace/%s deleted if it contains nothing else%s", u.Namespace, u.DryRun.Suffix())
		return nil
	}
	others, err := u.otherObjects(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		u.report("namespace/%s kept, because it contains %s", u.Namespace, printer.Some(others, 5))
		return nil
	}
	if err := u.delete(ctx, namespace); err != nil {
		return err
	}
	return u.awaitNamespace(ctx, &namespace)
}

// awaitNamespace waits until a namespace that is being deleted no longer exists.
func (u *uninstaller) awaitNamespace(ctx context.Context, namespace *object) error {
	err := u.poll(ctx, settleLimit, func(ctx context.Context) (bool, error) {
		_, err := u.objects.Resource(namespace.resource()).Get(ctx, namespace.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%s is still being deleted: find out what it waits for (kubectl describe namespace %s), and run the command again", namespace, namespace.name)
	}
	return err
}

// otherObjects returns the objects in nodegate's namespace that are not nodegate's.
func (u *uninstaller) otherObjects(ctx context.Context) ([]string, error) {
	// If the server of an API group is unavailable, the namespace may contain its
	// objects, so this is an error.
	lists, err := u.kinds.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, fmt.Errorf("listing the kinds of objects in namespace %s: %w", u.Namespace, err)
	}
	var others []string
	for _, list := range lists {
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "delete") {
				continue
			}
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				return nil, fmt.Errorf("reading the group of %s: %w", r.Name, err)
			}
			items, err := u.list(ctx, gv.WithResource(r.Name), u.Namespace, "")
			if err != nil {
				return nil, err
			}
			for j := range items {
				if !incidental(r.Kind, &items[j]) {
					o := object{gv.WithKind(r.Kind), u.Namespace, items[j].Name}
					others = append(others, o.String())
				}
			}
		}
	}
	slices.Sort(others)
	return others, nil
}

// incidental reports whether an object does not prevent the deletion of its namespace: it
// belongs to an owner or a Service, or exists in every namespace.
func incidental(kind string, o *metav1.PartialObjectMetadata) bool {
	switch kind {
	case "ServiceAccount":
		return o.Name == "default"
	case "ConfigMap":
		return o.Name == "kube-root-ca.crt"
	case "Event", "Endpoints":
		return true
	}
	return len(o.OwnerReferences) > 0
}
