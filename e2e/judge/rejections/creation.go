// SPDX-License-Identifier: Apache-2.0

package rejections

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// judgeCreation judges the rejection of a Node's creation that names no part of nodegate. The API
// server validates the Node after the birth policy or the webhook has changed it.
func judgeCreation(r *revisions.Request) Outcome {
	switch {
	case strings.HasPrefix(r.Message, "APIServer panic'd"):
		return Outcome{Wrong, "an expression of the birth policy can cause this: " + r.Message}
	case r.Code >= http.StatusInternalServerError:
		return Outcome{Unclear, "creations of Nodes that failed with a server error"}
	case r.Code != http.StatusUnprocessableEntity:
		return Outcome{}
	}
	var sent corev1.Node
	if json.Unmarshal(r.Body, &sent) != nil {
		return Outcome{Unclear, "creations of invalid Nodes that are not in the audit log"}
	}
	if why := added(&sent, r); why != "" {
		return Outcome{Wrong, fmt.Sprintf("%s: %s", why, r.Message)}
	}
	return Outcome{Unclear, "creations of Nodes that are invalid for another reason than a taint or an annotation that nodegate adds"}
}

// taintIndex matches the index of an invalid taint. The API server calls the field metadata.taints.
var taintIndex = regexp.MustCompile(`(?:metadata|spec)\.taints\[(\d+)\]`)

// annotationsLimit is the maximum size of a Node's annotations.
const annotationsLimit = 256 << 10

// added returns why a Node became invalid only after it was sent, or "".
func added(sent *corev1.Node, r *revisions.Request) string {
	index := -1
	if found := taintIndex.FindStringSubmatch(r.Message); found != nil {
		index, _ = strconv.Atoi(found[1])
	}
	switch {
	case strings.Contains(r.Message, "nodegate.dev/") && !strings.Contains(string(r.Body), "nodegate.dev/"):
		return "the request contains nothing of nodegate"
	case strings.Contains(r.Message, "metadata.annotations: Too long") && annotationsSize(sent) <= annotationsLimit:
		return "the annotations of the request are not too long"
	case index >= 0 && strings.Contains(r.Message, "Duplicate value") && !hasTwins(sent.Spec.Taints):
		return "no two taints of the request have the same key and effect"
	case index >= len(sent.Spec.Taints):
		return "the request does not contain the taint"
	}
	return ""
}

func annotationsSize(node *corev1.Node) (size int) {
	for key, value := range node.Annotations {
		size += len(key) + len(value)
	}
	return size
}

// hasTwins reports whether two taints have the same key and effect.
func hasTwins(taints []corev1.Taint) bool {
	for i, t := range taints {
		if slices.ContainsFunc(taints[i+1:], func(other corev1.Taint) bool { return other.MatchTaint(&t) }) {
			return true
		}
	}
	return false
}
