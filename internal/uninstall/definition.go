// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

func (u *uninstaller) deleteDefinition(ctx context.Context) error {
	if err := u.delete(ctx, definition); err != nil {
		return err
	}
	err := u.poll(ctx, settleLimit, func(ctx context.Context) (bool, error) {
		_, err := u.objects.Resource(definition.resource()).Get(ctx, definition.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%s still exists: %s, and run the command again", &definition, u.definitionAdvice(ctx))
	}
	return err
}

// definitionAdvice describes what to do about the definition, which exists until there are no gates.
func (u *uninstaller) definitionAdvice(ctx context.Context) string {
	gates, _ := u.list(ctx, v1alpha1.Resource, "", "") // without them, the user has to find out
	var names, finalizers []string
	for i := range gates {
		if g := &gates[i]; len(g.Finalizers) > 0 {
			names, finalizers = append(names, g.Name), append(finalizers, g.Name+": "+strings.Join(g.Finalizers, ", "))
		}
	}
	if len(names) == 0 {
		return "find out why (kubectl get nodegates; another client may create them)"
	}
	return fmt.Sprintf("NodeGates wait for their finalizers (%s): if no program removes them, remove them with 'kubectl edit nodegate %s'",
		strings.Join(finalizers, "; "), strings.Join(names, " "))
}
