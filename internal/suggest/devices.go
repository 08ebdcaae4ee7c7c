// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// wordMin is the minimum length of a resource's name, or of a word in it, that identifies its
// device plugin without the vendor. Short words such as gpu are in the names of several vendors'
// device plugins.
const wordMin = 5

// provides reports whether the DaemonSet is a device plugin whose name, or the path of an image,
// contains one of these as whole words: the resource's own name, such as neuron; the vendor and
// another part of the resource, such as nvidia and gpu in nvidia.com/gpu; or the vendor or a long
// part in front of "device plugin". The vendor alone is not sufficient, because vendors have
// several device plugins.
func (d *daemon) provides(resource string) bool {
	if !d.devicePlugin {
		return false
	}
	texts := []string{d.Name}
	for _, containers := range [][]corev1.Container{d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers} {
		for i := range containers {
			texts = append(texts, repository(containers[i].Image))
		}
	}
	domain, name, _ := strings.Cut(resource, "/")
	kinds, vendor := words(name), ""
	if parts := words(domain); len(parts) > 1 {
		vendor = parts[len(parts)-2]
		kinds = append(kinds, parts[:len(parts)-2]...)
	}
	own := spaced(words(name))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == vendor })
	return slices.ContainsFunc(texts, func(text string) bool {
		all := words(text)
		return len(name) >= wordMin && strings.Contains(spaced(all), own) || vendor != "" && isFor(all, vendor, kinds)
	})
}

// isFor reports whether the words of a name contain the vendor of a device and one of its kinds,
// or the vendor or a long kind in front of "device plugin". There, a word may also begin with the
// vendor, as habanalabs does for habana.ai.
func isFor(all []string, vendor string, kinds []string) bool {
	named := slices.ContainsFunc(all, func(word string) bool { return isVendor(word, vendor) })
	for i, word := range all {
		kind, follows := strings.CutPrefix(word, vendor)
		if isPlugin(all[i+1:]) && (follows || isVendor(word, vendor) || len(word) >= wordMin && slices.Contains(kinds, word)) {
			return true
		}
		if named && slices.Contains(kinds, word) || follows && slices.Contains(kinds, kind) {
			return true
		}
	}
	return false
}

// isVendor reports whether a word is the vendor or its end, such as aws for amazonaws.com.
func isVendor(word, vendor string) bool {
	return word == vendor || len(word) >= 3 && strings.HasSuffix(vendor, word)
}

// isPlugin reports whether words begin with "plugin" or "device plugin".
func isPlugin(all []string) bool {
	if len(all) > 0 && all[0] == "device" {
		all = all[1:]
	}
	return len(all) > 0 && strings.HasPrefix(all[0], "plugin")
}

// spaced returns the words with a space on each side, so that only whole words are found in it.
func spaced(all []string) string { return " " + strings.Join(all, " ") + " " }

// words returns the words of a name or a path, without those that many device plugins have.
func words(text string) []string {
	all := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("/-._", r) })
	return slices.DeleteFunc(all, func(word string) bool { return word == "k8s" || word == "kubernetes" })
}

// repository returns the path of an image, without its registry, tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if host, path, found := strings.Cut(image, "/"); found && (strings.ContainsAny(host, ".:") || host == "localhost") {
		image = path
	}
	image, _, _ = strings.Cut(image, ":")
	return image
}
