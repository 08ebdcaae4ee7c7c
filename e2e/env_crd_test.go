// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
)

func (e *env) definition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Resource.GroupResource().String()}}
}

// crdClient returns an administrator's client whose scheme includes
// CustomResourceDefinitions.
func (e *env) crdClient() client.Client {
	e.Helper()
	scheme := newScheme(e.T)
	e.must(apiextensionsv1.AddToScheme(scheme))
	api, err := client.New(e.cluster.Admin(), client.Options{Scheme: scheme})
	e.must(err)
	return api
}

func (e *env) deleteCRD() {
	e.Helper()
	api := e.crdClient()
	e.must(api.Delete(e.Context(), e.definition()))
	e.eventually("the CRD is deleted", func() error {
		err := api.Get(e.Context(), client.ObjectKeyFromObject(e.definition()), e.definition())
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errNotYet
	})
}

// restoreCRD creates the CRD again, and then the gates, as from a backup.
func (e *env) restoreCRD(gates ...*v1alpha1.NodeGate) {
	e.Helper()
	crdtest.Install(e.T, e.cluster.Admin())
	for _, ng := range gates {
		e.eventually("gate "+ng.Name+" is restored", func() error {
			ng.ResourceVersion, ng.UID, ng.Status = "", "", v1alpha1.NodeGateStatus{}
			return e.admin.Create(e.Context(), ng)
		})
	}
}
