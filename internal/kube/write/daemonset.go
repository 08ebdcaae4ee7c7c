// SPDX-License-Identifier: Apache-2.0

package write

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/kube/restconfig"
)

// ErrDaemonSetChanged is returned when a DaemonSet has changed since it was read. The caller
// must read it again.
var ErrDaemonSetChanged = errors.New("the DaemonSet has changed since it was read")

// OwnedError is returned when another field manager owns the tolerations of a DaemonSet.
type OwnedError struct {
	// Managers are the names of the field managers, sorted.
	Managers []string
}

// Error implements error.
func (e *OwnedError) Error() string {
	return "the list of tolerations is owned by " + strings.Join(e.Managers, " and ")
}

// DaemonSetWriter writes tolerations to DaemonSets by server-side apply, with the caller's
// credentials.
type DaemonSetWriter struct{ api kubernetes.Interface }

// NewDaemonSetWriter returns a DaemonSetWriter.
func NewDaemonSetWriter(config *rest.Config) (*DaemonSetWriter, error) {
	client, err := kubernetes.NewForConfig(restconfig.Core(config))
	if err != nil {
		return nil, fmt.Errorf("creating a client for DaemonSets: %w", err)
	}
	return &DaemonSetWriter{api: client}, nil
}

// applied is what is applied to a DaemonSet. The UID and the resource version restrict it
// to the DaemonSet as it was read, and prevent the creation of a DaemonSet.
type applied struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        appliedMetadata `json:"metadata"`
	Spec            *appliedSpec    `json:"spec,omitempty"`
}

type appliedMetadata struct {
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
}

type appliedSpec struct {
	Template struct {
		Spec struct {
			Tolerations []corev1.Toleration `json:"tolerations"`
		} `json:"spec"`
	} `json:"template"`
}

// Apply replaces the tolerations of a DaemonSet that was read, and returns the result. The
// list is atomic: the field manager owns the whole list afterwards. If another manager owns
// it, the error is an OwnedError, unless force is set. If tolerations is nil, nothing is
// applied and nothing is owned: the API server only evaluates its admission policies. The
// error wraps ErrDaemonSetChanged if the DaemonSet has changed since it was read.
func (w *DaemonSetWriter) Apply(ctx context.Context, ds *appsv1.DaemonSet, tolerations []corev1.Toleration, force bool, dryRun []string) (*appsv1.DaemonSet, error) {
	object := applied{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"},
		Metadata: appliedMetadata{Namespace: ds.Namespace, Name: ds.Name, UID: ds.UID, ResourceVersion: ds.ResourceVersion},
	}
	if tolerations != nil {
		object.Spec = &appliedSpec{}
		object.Spec.Template.Spec.Tolerations = tolerations
	}
	body, err := json.Marshal(&object)
	if err != nil {
		return nil, fmt.Errorf("encoding DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	options := metav1.PatchOptions{FieldManager: v1alpha1.TolerateFieldManager, Force: &force, DryRun: dryRun}
	result, err := w.api.AppsV1().DaemonSets(ds.Namespace).Patch(ctx, ds.Name, types.ApplyPatchType, body, options)
	switch {
	case err == nil:
		return result, nil
	case apierrors.IsConflict(err):
		if owners := ownersOf(err); len(owners) > 0 {
			return nil, &OwnedError{Managers: owners}
		}
		err = wrap(ErrDaemonSetChanged, err)
	}
	return nil, fmt.Errorf("applying tolerations to DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
}

// ownersOf returns the field managers in the error of a conflict, sorted.
func ownersOf(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var owners []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		owner := cause.Message // conflict with "manager" using apps/v1
		if parts := strings.Split(owner, `"`); len(parts) == 3 {
			owner = parts[1]
		}
		owners = append(owners, owner)
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}
