// SPDX-License-Identifier: Apache-2.0

package gateclient

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// enums contains the values that fields of these types can have. An API server whose
// CustomResourceDefinition is of a newer version also accepts values that this version
// must not mistake for others. (A test compares enums with the definition.)
var enums = union(
	enum(v1alpha1.ModeEnforce, v1alpha1.ModeDryRun, v1alpha1.ModePaused),
	enum(v1alpha1.RecloseNever, v1alpha1.RecloseOnReboot, v1alpha1.RecloseOnRegression),
	enum(v1alpha1.ExistingIgnore, v1alpha1.ExistingAdopt, v1alpha1.ExistingCloseIfIdle, v1alpha1.ExistingClose),
	enum(v1alpha1.ReopenAutomatic, v1alpha1.ReopenManual),
	enum(v1alpha1.BypassedIgnore, v1alpha1.BypassedReport, v1alpha1.BypassedEvict, v1alpha1.BypassedHold),
	enum(v1alpha1.DeadlineKeepClosed, v1alpha1.DeadlineOpen),
	enum(v1alpha1.DeadlineConditionNone, v1alpha1.DeadlineConditionPublish),
	enum(v1alpha1.CloseTogetherNever, v1alpha1.CloseTogetherWhenIncomplete),
	enum(v1alpha1.AcknowledgePodEviction, v1alpha1.AcknowledgeVolumeDetach),
	enum(v1alpha1.ReadyByCondition, v1alpha1.ReadyByAnnotation, v1alpha1.ReadyByEither),
	enum(v1alpha1.RequireAny, v1alpha1.RequireAll),
	enum(v1alpha1.MissingNotYet, v1alpha1.MissingHolds),
	enum(v1alpha1.NodeByName, v1alpha1.NodeByLabel, v1alpha1.NodeByField, v1alpha1.NodeByOwner),
	enum(v1alpha1.PoolsNodeLocal, v1alpha1.PoolsShared),
	enum(corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute),
	enum(metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist),
)

type values = map[reflect.Type][]string

func enum[T ~string](known ...T) values {
	var all []string
	for _, value := range known {
		all = append(all, string(value))
	}
	return values{reflect.TypeFor[T](): all}
}

func union(all ...values) values {
	result := make(values)
	for _, some := range all {
		maps.Copy(result, some)
	}
	return result
}

// unknownValue returns an error that names the first field, at or below a path, that has a
// value that this version does not know. Empty fields have their defaults.
func unknownValue(path string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		return unknownValue(path, v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			if err := unknownValue(fmt.Sprintf("%s[%d]", path, i), v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := unknownValue(path+fieldName(v.Type().Field(i)), v.Field(i)); err != nil {
				return err
			}
		}
	case reflect.String:
		if known, ok := enums[v.Type()]; ok && v.Len() > 0 && !slices.Contains(known, v.String()) {
			return fmt.Errorf("%s: %q is not supported; supported: %s", path, v.String(), strings.Join(known, ", "))
		}
	}
	return nil
}

// fieldName returns the part of a path that a field adds, which is "" for inlined fields.
func fieldName(f reflect.StructField) string {
	if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
		return "." + name
	}
	return ""
}
