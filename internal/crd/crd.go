// SPDX-License-Identifier: Apache-2.0

// Package crd contains the CustomResourceDefinition of NodeGate and applies it without
// an API server. The schema, the defaults and the CEL rules are specified only in the
// definition. A gate from a file is validated by the code that the API server uses, and
// rejected with the same messages.
package crd

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

//go:embed nodegate.dev_nodegates.yaml
var manifest []byte

// Kind is the kind of NodeGate objects.
const Kind = "NodeGate"

// Manifest returns the definition as YAML, ready to be applied.
func Manifest() []byte {
	return bytes.Clone(manifest)
}

// Definition returns the definition.
func Definition() (*apiextensionsv1.CustomResourceDefinition, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(manifest, definition); err != nil {
		return nil, fmt.Errorf("reading the embedded definition: %w", err)
	}
	return definition, nil
}

// Decode parses a NodeGate from YAML or JSON in the same way as the API server with
// strict field validation: it rejects unknown and duplicate fields, sets defaults and
// applies the validation rules. It drops the status.
func Decode(document []byte) (*v1alpha1.NodeGate, error) {
	rules, err := compiled()
	if err != nil {
		return nil, err
	}
	object, err := parse(document)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := rules.prune(object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := rules.admit(object); err != nil {
		return nil, err
	}
	delete(object.Object, "status") // the default, which is for gates that the controller has not processed yet
	return fromUnstructured(object)
}

// Validate returns an error if the API server would reject the gate. The error is an
// API status with the API server's message, which lists every violation. Validate does
// not change the gate.
func Validate(gate *v1alpha1.NodeGate) error {
	rules, err := compiled()
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(gate)
	if err != nil {
		return fmt.Errorf("converting NodeGate %s: %w", gate.Name, err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(Kind))
	return rules.admit(object)
}

// rules contains the compiled definition. It is safe for concurrent use.
type rules struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

// compiled compiles the definition when it is first called.
var compiled = sync.OnceValues(func() (*rules, error) {
	definition, err := Definition()
	if err != nil {
		return nil, err
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil, fmt.Errorf("converting the embedded schema: %w", err)
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("reading the embedded schema: %w", err)
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, fmt.Errorf("compiling the embedded schema: %w", err)
	}
	return &rules{
		structural: structural,
		schema:     validator,
		cel:        cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}, nil
})

// prune rejects fields that are not in the schema, and removes nulls.
func (r *rules) prune(object *unstructured.Unstructured) error {
	_, _, unknown, err := objectmeta.GetObjectMetaWithOptions(object.Object,
		objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return fmt.Errorf("reading metadata: %w", err)
	}
	unknown = append(unknown, pruning.PruneWithOptions(object.Object, r.structural, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	if len(unknown) > 0 {
		errs := make([]error, 0, len(unknown))
		for _, path := range unknown {
			errs = append(errs, fmt.Errorf("unknown field %q", path))
		}
		return runtime.NewStrictDecodingError(errs)
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, r.structural)
	return nil
}

// admit sets defaults and applies the validation rules, in the order in which the API
// server does so on creation.
func (r *rules) admit(object *unstructured.Unstructured) error {
	delete(object.Object, "status")
	defaulting.Default(object.Object, r.structural)

	meta, found, err := objectmeta.GetObjectMeta(object.Object, false)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if !found {
		meta = &metav1.ObjectMeta{}
	}
	meta.Namespace = "" // the API server ignores it, and Kustomize adds it to kinds that it does not know
	object.SetNamespace("")
	errs := metavalidation.ValidateObjectMeta(meta, false, metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateCustomResource(nil, object.Object, r.schema)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, r.structural, object.Object)...)
	errs = append(errs, r.evaluate(object, errs)...)
	if len(errs) == 0 {
		return nil
	}
	invalid := apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind(Kind).GroupKind(), meta.Name, errs)
	invalid.ErrStatus.Message = strings.ReplaceAll(invalid.ErrStatus.Message, unchecked.Error(), unchecked.Detail)
	return invalid
}

// unchecked is the API server's remark that an error prevented the evaluation of rules. It belongs
// to no field, so in a message it would begin with "<nil>: Invalid value: null".
var unchecked = field.Invalid(nil, nil, "some validation rules were not checked "+
	"because the object was invalid; correct the existing errors to complete validation")

// evaluate applies the CEL rules, unless an earlier error prevents their evaluation.
func (r *rules) evaluate(object *unstructured.Unstructured, found field.ErrorList) field.ErrorList {
	for _, err := range found {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong,
			field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return field.ErrorList{unchecked}
		}
	}
	// The rules have a cost limit, so no deadline is needed.
	errs, _ := r.cel.Validate(context.Background(), nil, r.structural, object.Object, nil, celconfig.RuntimeCELCostBudget)
	return errs
}

// parse parses a YAML or JSON document whose kind is NodeGate.
func parse(document []byte) (*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, fmt.Errorf("parsing YAML: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &object.Object); err != nil {
		return nil, errors.New("the document has no fields; write a NodeGate in YAML or JSON, as 'kubectl get nodegates -o yaml' prints it")
	}
	if object.Object == nil {
		return nil, errors.New("the document is empty; write one NodeGate")
	}
	if want := v1alpha1.GroupVersion.String(); object.GetAPIVersion() != want || object.GetKind() != Kind {
		return nil, fmt.Errorf("the document is not a NodeGate; set apiVersion: %s and kind: %s", want, Kind)
	}
	return object, nil
}

func fromUnstructured(object *unstructured.Unstructured) (*v1alpha1.NodeGate, error) {
	gate := &v1alpha1.NodeGate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, gate); err != nil {
		return nil, fmt.Errorf("converting NodeGate %s: %w", object.GetName(), err)
	}
	return gate, nil
}
