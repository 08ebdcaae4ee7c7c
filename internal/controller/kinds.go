// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/readinessrules"
)

// kinds are the kinds of all objects that Process.Client reads and writes, by the scope of
// their resources.
var kinds = map[meta.RESTScope][]schema.GroupVersionKind{
	meta.RESTScopeRoot: {
		corev1.SchemeGroupVersion.WithKind("Node"),
		v1alpha1.GroupVersion.WithKind("NodeGate"),
		readinessrules.Kind,
		authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
		authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
		authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
		authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
	},
	meta.RESTScopeNamespace: {
		corev1.SchemeGroupVersion.WithKind("PodTemplate"),
		eventsv1.SchemeGroupVersion.WithKind("Event"),
	},
}

// newMapper returns a mapping from kinds to resources. A mapping that is discovered from the
// API server takes half a megabyte, and several requests before the first write.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for scope, scoped := range kinds {
		for _, kind := range scoped {
			mapper.Add(kind, scope)
		}
	}
	return mapper
}

// sharedScheme returns the scheme that the whole process shares. It contains only the
// groups of kinds, because a scheme with all groups of Kubernetes takes half a megabyte. It
// must not be modified.
var sharedScheme = sync.OnceValues(newScheme)

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	groups := runtime.NewSchemeBuilder(corev1.AddToScheme, eventsv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme)
	if err := groups.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	return scheme, nil
}
