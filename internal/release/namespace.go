// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/internal/install"
)

// CheckNamespace returns an error if nodegate's permissions are those of a ServiceAccount in
// another namespace. It reports whether the permissions exist: without them, no controller can
// close a gate.
func CheckNamespace(ctx context.Context, core kubernetes.Interface, namespace string) (bool, error) {
	binding, err := core.RbacV1().ClusterRoleBindings().Get(ctx, install.ClusterRole, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("determining nodegate's namespace: %w", err)
	}
	for i := range binding.Subjects {
		if s := &binding.Subjects[i]; s.Kind == rbacv1.ServiceAccountKind && s.Namespace != namespace {
			return true, InstalledIn(s.Namespace, namespace)
		}
	}
	return true, nil
}

// elsewhereError is returned if nodegate is installed in another namespace than the one that was
// specified.
type elsewhereError struct{ found, specified string }

// InstalledIn returns the error that nodegate is installed in another namespace than the one that
// was specified.
func InstalledIn(found, specified string) error { return &elsewhereError{found, specified} }

func (e *elsewhereError) Error() string { return e.fact() + ": use --namespace=" + e.found }

func (e *elsewhereError) fact() string {
	return fmt.Sprintf("nodegate is installed in namespace %s, not in %s", e.found, e.specified)
}
