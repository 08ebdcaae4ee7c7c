// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/internal/install"
	"github.com/nodegate/nodegate/internal/release"
)

// isHere refuses a namespace if nodegate is in another: what runs there would stay,
// without rights, and be taken for gone.
func (u *uninstaller) isHere(ctx context.Context) error {
	core, err := kubernetes.NewForConfig(u.config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	binding, err := core.RbacV1().ClusterRoleBindings().Get(ctx, install.ClusterRole, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("finding out where nodegate is installed: %w", err)
	}
	for i := range binding.Subjects {
		if s := &binding.Subjects[i]; s.Kind == rbacv1.ServiceAccountKind && s.Namespace != u.Namespace {
			return fmt.Errorf("nodegate is installed in namespace %s, and not in %s: say so by --namespace", s.Namespace, u.Namespace)
		}
	}
	return nil
}

// deleteNamespace deletes nodegate's namespace if it is nodegate's alone.
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
	case found.DeletionTimestamp != nil: // it is on its way
		return nil
	}
	if u.DryRun != release.DryRunNone { // nodegate's own objects are still there
		u.say("namespace/%s deleted, if nothing else is in it%s", u.Namespace, u.DryRun.Suffix())
		return nil
	}
	others, err := u.others(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		u.say("namespace/%s is kept: there is %s", u.Namespace, strings.Join(others[:min(5, len(others))], ", "))
		return nil
	}
	return u.delete(ctx, namespace)
}

// others are what is in nodegate's namespace and is not nodegate's.
func (u *uninstaller) others(ctx context.Context) ([]string, error) {
	// Of a group whose server is away it is not known what it has: it is as if
	// there were something.
	lists, err := u.kinds.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, fmt.Errorf("finding out what there may be in namespace %s: %w", u.Namespace, err)
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

// incidental tells whether nobody would miss an object: it goes with its owner or
// its Service, or every namespace has it.
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
