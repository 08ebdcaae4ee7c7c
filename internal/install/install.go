// SPDX-License-Identifier: Apache-2.0

// Package install renders the objects that nodegate needs in a cluster, all
// but the Deployment that runs it.
package install

import (
	"bytes"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/crd"
)

// Options are what an installation may choose.
type Options struct {
	// Namespace is where nodegate runs.
	Namespace string
	// ServiceAccount is the name of the one that it runs as.
	ServiceAccount string
	// AllowedTaintKeys are the taints that gates may use, each as key:Effect, or
	// as key for key:NoSchedule.
	AllowedTaintKeys []string
	// AllowedStampAnnotations are the annotations that gates may stamp.
	AllowedStampAnnotations []string
	// EvictPods lets nodegate evict pods, which gates with bypassedPods: Evict ask
	// for.
	EvictPods bool
	// WithoutCRD leaves out the CustomResourceDefinition, and the rights that go
	// with it: gates are declared in files.
	WithoutCRD bool
	// Birth is who closes gates on new nodes. Default: the API server's policy.
	Birth admission.Birth
}

// Validate refuses options of which no installation can be made.
func (o Options) Validate() error {
	_, err := admission.Policies(o.admission())
	return err
}

// Username is the ServiceAccount's name as the API server knows it.
func (o Options) Username() string { return o.admission().Username() }

func (o Options) admission() admission.Options {
	return admission.Options{
		Namespace: o.Namespace, ServiceAccount: o.ServiceAccount, Birth: o.Birth,
		AllowedTaintKeys: o.AllowedTaintKeys, AllowedStampAnnotations: o.AllowedStampAnnotations,
	}
}

const (
	// ClusterRole is what the controller may do in the whole cluster, and the name of its
	// binding to the ServiceAccount.
	ClusterRole = "nodegate"
	// evictRoleName is what lets nodegate evict pods.
	evictRoleName = "nodegate-evict-pods"
	// eventsRoleName is what lets nodegate write Events about nodes.
	eventsRoleName = "nodegate-events"
	rbacVersion    = rbacv1.GroupName + "/v1"
)

type object = client.Object

// Write writes the objects as a stream of YAML documents, in the order in
// which they are to be applied.
func Write(w io.Writer, o Options) error {
	var documents [][]byte
	if !o.WithoutCRD {
		documents = append(documents, crd.Manifest())
	}
	objects, err := Objects(o)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		document, err := Marshal(obj)
		if err != nil {
			return fmt.Errorf("marshalling %T: %w", obj, err)
		}
		documents = append(documents, document)
	}
	for _, document := range documents {
		document = bytes.TrimPrefix(document, []byte("---\n"))
		if _, err := fmt.Fprintf(w, "---\n%s", document); err != nil {
			return fmt.Errorf("writing manifests: %w", err)
		}
	}
	return nil
}

// Objects returns the objects, all but the CustomResourceDefinition.
func Objects(o Options) ([]client.Object, error) {
	policies, err := admission.Policies(o.admission())
	if err != nil {
		return nil, fmt.Errorf("rendering policies: %w", err)
	}
	objects := []object{&corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}}}
	r := renderer{o}
	objects = append(objects, r.rbac()...)
	objects = append(objects, r.flow())
	objects = append(objects, policies...)
	return append(objects, r.webhook()...), nil
}

// renderer renders for one installation.
type renderer struct{ Options }

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// Marshal writes an object as YAML, without what only the API server sets.
func Marshal(obj object) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "status")
	return yaml.Marshal(content)
}
