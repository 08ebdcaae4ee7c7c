// SPDX-License-Identifier: Apache-2.0

package descheduler

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ConfigMaps returns the names of the ConfigMaps that a pod mounts if it runs a descheduler,
// and otherwise none. A descheduler reads its policy from a file.
func ConfigMaps(pod *corev1.PodSpec) (names []string) {
	if !slices.ContainsFunc(pod.Containers, runs) {
		return nil
	}
	for i := range pod.Volumes {
		v := &pod.Volumes[i]
		if v.ConfigMap != nil {
			names = append(names, v.ConfigMap.Name)
		}
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			if m := v.Projected.Sources[j].ConfigMap; m != nil {
				names = append(names, m.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// runs reports whether a container runs a descheduler, by its image and command. Mirrors and
// distributions rename the image, but keep the word.
func runs(c corev1.Container) bool {
	return strings.Contains(path.Base(c.Image), "descheduler") ||
		slices.ContainsFunc(c.Command, func(word string) bool { return path.Base(word) == "descheduler" })
}
