// SPDX-License-Identifier: Apache-2.0

// Package install renders the objects that nodegate requires in a cluster, except the
// Deployment.
package install

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/crd"
)

// Options are the options of an installation.
type Options struct {
	// Namespace is the namespace in which nodegate runs.
	Namespace string
	// ServiceAccount is the name of nodegate's ServiceAccount.
	ServiceAccount string
	// AllowedTaintKeys are the taints that gates may use, each as key:Effect, or as key,
	// which means key:NoSchedule.
	AllowedTaintKeys []string
	// AllowedStampAnnotations are the annotations that gates may set in
	// openedAtAnnotation.
	AllowedStampAnnotations []string
	// PlainOptOut makes the label nodegate.dev/opt-out, which kubelets can set, exclude
	// Nodes from gates.
	PlainOptOut bool
	// EvictPods permits nodegate to evict pods, which gates with bypassedPods: Evict
	// require.
	EvictPods bool
	// NodeConditions permits nodegate to patch nodes/status, which gates with
	// deadline.condition: Publish require. A policy restricts it to their conditions.
	NodeConditions bool
	// Observe contains the resources of other kinds that nodegate may read, for gates with
	// object signals.
	Observe []schema.GroupResource
	// GuardDaemonPods adds a policy that permits only the DaemonSet controller to create
	// pods of DaemonSets. DaemonPodCreators are additional users that may create them.
	GuardDaemonPods   bool
	DaemonPodCreators []string
	// OpenMetrics omits the objects with which the API server authorizes readers of
	// metrics: every client that can reach the port may read them.
	OpenMetrics bool
	// WithoutCRD omits the CustomResourceDefinition and the permissions for it: gates are
	// declared in files.
	WithoutCRD bool
	// Birth specifies what closes gates on new nodes. Defaults to the API server's policy.
	Birth admission.Birth
}

// Validate returns an error if the options are invalid.
func (o Options) Validate() error {
	if err := o.validateObserve(); err != nil {
		return err
	}
	_, err := admission.Policies(o.admission())
	return err
}

// validateObserve rejects resources whose content gates must not reveal.
func (o Options) validateObserve() error {
	for _, r := range o.Observe {
		if r.Resource == "" || strings.ContainsAny(r.Resource+r.Group, "*/") {
			return fmt.Errorf("checking --observe: %q is not a resource: write it as RESOURCE.GROUP, such as ciliumnodes.cilium.io", r)
		}
		if err := v1alpha1.CheckObserved(r); err != nil {
			return fmt.Errorf("checking --observe: %w", err)
		}
	}
	return nil
}

// Username returns the user name of the ServiceAccount.
func (o Options) Username() string { return o.admission().Username() }

func (o Options) admission() admission.Options {
	return admission.Options{
		Namespace: o.Namespace, ServiceAccount: o.ServiceAccount, Birth: o.Birth, WithoutCRD: o.WithoutCRD,
		AllowedTaintKeys: o.AllowedTaintKeys, AllowedStampAnnotations: o.AllowedStampAnnotations, PlainOptOut: o.PlainOptOut,
		GuardDaemonPods: o.GuardDaemonPods, DaemonPodCreators: o.DaemonPodCreators,
	}
}

const (
	// ClusterRole is the name of the ClusterRole of the controller and of its
	// ClusterRoleBinding.
	ClusterRole = "nodegate"
	// evictRoleName is the name of the ClusterRole that permits nodegate to evict pods.
	evictRoleName = "nodegate-evict-pods"
	// observeRoleName is the name of the ClusterRole that permits nodegate to read objects
	// of other kinds.
	observeRoleName = "nodegate-observe"
	// conditionsRoleName is the name of the ClusterRole that permits nodegate to publish
	// conditions of Nodes.
	conditionsRoleName = "nodegate-node-conditions"
	// metricsRoleName is the name of the ClusterRole that permits nodegate to authorize
	// readers of metrics.
	metricsRoleName = "nodegate-metrics-auth"
	// MetricsReader is the ClusterRole of clients that may read metrics and /nodes/<name>.
	MetricsReader = "nodegate-metrics-reader"
	// eventsRoleName is the name of the Role that permits nodegate to write Events about
	// nodes.
	eventsRoleName = "nodegate-events"
	rbacVersion    = rbacv1.GroupName + "/v1"
)

type object = client.Object

// Write writes the objects as YAML documents, in the order in which they must be applied.
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

// Objects returns the objects, except the CustomResourceDefinition.
func Objects(o Options) ([]client.Object, error) {
	if err := o.validateObserve(); err != nil {
		return nil, err
	}
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

// renderer renders the objects of one installation.
type renderer struct{ Options }

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// Marshal returns an object as YAML, without fields that only the API server sets.
func Marshal(obj object) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "status")
	return yaml.Marshal(content)
}
