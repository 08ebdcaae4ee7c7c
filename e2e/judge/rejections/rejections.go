// SPDX-License-Identifier: Apache-2.0

// Package rejections decides which part of nodegate rejected a request, and whether it was right
// to do so: because the request would have changed what the part protects.
package rejections

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// Result is what a response shows.
type Result int

// The results.
const (
	// Passed means that nodegate did not reject the request.
	Passed Result = iota
	// Protected means that nodegate was right to reject the request.
	Protected
	// Wrong means that nodegate was wrong to reject the request.
	Wrong
	// Unclear means that nodegate may have rejected the request.
	Unclear
)

// Outcome is a result. Why is the reason for it, unless the request passed.
type Outcome struct {
	Result
	Why string
}

// The names of the policies that are right to reject some requests.
const (
	confinement = "nodegate-confinement"
	records     = "nodegate-records"
)

// part matches the name of a policy or webhook of nodegate in the message of a response. The API
// server writes it in this form for rejections, errors of expressions, and webhooks that do not answer.
var part = regexp.MustCompile(`(?i)policy ['"](nodegate-[a-z-]+)['"]|webhook "((?:[a-z0-9-]+\.)*nodegate\.dev)"`)

// RejectedBy returns the name of the policy or webhook of nodegate that rejected a request,
// according to the response; "" if there is none.
func RejectedBy(r *revisions.Request) string {
	found := part.FindStringSubmatch(r.Message)
	if r.Code < http.StatusBadRequest || found == nil {
		return ""
	}
	return found[1] + found[2]
}

// Judge judges the response to a request of another user than nodegate.
func Judge(h *revisions.History, r *revisions.Request) Outcome {
	by := RejectedBy(r)
	writes := r.Verb == "update" || r.Verb == "patch"
	switch {
	case r.Code < http.StatusBadRequest:
		return Outcome{}
	case by == records && writes && isNode(r):
		return judgeGuarded(h, r)
	case by != "":
		return Outcome{Wrong, r.Message}
	case r.Resource == "nodes" && r.Verb == "create":
		return judgeCreation(r)
	case strings.Contains(r.Message, "is not allowed to modify taints") && writes && isNode(r):
		return judgeTaints(h, r)
	case r.Code >= http.StatusInternalServerError:
		return Outcome{Unclear, "requests that failed with a server error"}
	}
	return Outcome{}
}

// JudgeOwn judges the response to a request of nodegate.
func JudgeOwn(h *revisions.History, r *revisions.Request) Outcome {
	by := RejectedBy(r)
	if by == "" {
		return Outcome{}
	}
	if by == confinement && isNode(r) {
		for _, node := range statesOf(h, r) {
			switch {
			case isExcessive(node):
				return Outcome{Protected, "rejected writes of Nodes with more entries than any real node has"}
			case adds(r, corev1.TaintNodeOutOfService) && !facts.IsUnreachable(node):
				return Outcome{Protected, "rejected additions of the taint out-of-service to Nodes that report again"}
			}
		}
	}
	return Outcome{Wrong, r.Message}
}

// adds reports whether a request was rejected because it adds a taint with this key.
func adds(r *revisions.Request, key string) bool {
	return strings.Contains(string(r.Body), key) && strings.Contains(r.Message, key)
}

func isNode(r *revisions.Request) bool { return r.Resource == "nodes" || r.Resource == "nodes/status" }

// many is the number of annotations or taints above which policies do not distinguish nodegate's
// from others. That of field managers, and of fields in one map of a manager, is different.
const (
	many         = 1024
	manyManagers = 256
	manyFields   = 1025
)

// isExcessive reports whether the Node has so many taints, annotations or field managers that the
// confinement policy lets nodegate change nothing.
func isExcessive(node *corev1.Node) bool {
	return len(node.Spec.Taints) > many || len(node.Annotations) > many || len(node.ManagedFields) > manyManagers ||
		slices.ContainsFunc(node.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			var fields map[string]any
			return e.FieldsV1 != nil && json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) == nil && widest(fields) > manyFields
		})
}

// widest returns the number of entries of the largest map.
func widest(fields map[string]any) int {
	size := len(fields)
	for _, value := range fields {
		if nested, ok := value.(map[string]any); ok {
			size = max(size, widest(nested))
		}
	}
	return size
}

// statesOf returns the states of the Node on which the API server may have carried out a request:
// that with the resourceVersion in the request, if it has one.
func statesOf(h *revisions.History, r *revisions.Request) []*corev1.Node {
	var body struct {
		Metadata struct{ ResourceVersion string }
	}
	if json.Unmarshal(r.Body, &body) == nil {
		if revision, err := strconv.ParseInt(body.Metadata.ResourceVersion, 10, 64); err == nil {
			node := h.Moment(revision).Node(r.Name)
			if node == nil {
				return nil
			}
			return []*corev1.Node{node}
		}
	}
	return h.NodesDuring(r.Name, r.Received, r.Done)
}

// each calls f with each state of the Node, and with what the request makes of it. It returns
// whether there is a state to which the request can be applied.
func each(h *revisions.History, r *revisions.Request, f func(before, after *corev1.Node)) (found bool) {
	for _, before := range statesOf(h, r) {
		if after, err := apply(r, before); err == nil {
			found = true
			f(before, after)
		}
	}
	return found
}

// apply returns the Node after a request, before admission. The type of a patch is not logged.
// JSON Patches are lists; for annotations and taints, strategic merge patches are the same
// as merge patches and server-side apply, except for fields that the latter removes.
func apply(r *revisions.Request, before *corev1.Node) (*corev1.Node, error) {
	body := r.Body
	if r.Verb == "patch" {
		raw, err := json.Marshal(before)
		if err != nil {
			return nil, fmt.Errorf("encoding a Node: %w", err)
		}
		if strings.HasPrefix(strings.TrimSpace(string(body)), "[") {
			patch, err := jsonpatch.DecodePatch(body)
			if err != nil {
				return nil, fmt.Errorf("decoding a JSON Patch: %w", err)
			}
			body, err = patch.Apply(raw)
			if err != nil {
				return nil, fmt.Errorf("applying a JSON Patch: %w", err)
			}
		} else if body, err = strategicpatch.StrategicMergePatch(raw, body, corev1.Node{}); err != nil {
			return nil, fmt.Errorf("applying a merge patch: %w", err)
		}
	}
	after := &corev1.Node{}
	if err := json.Unmarshal(body, after); err != nil {
		return nil, fmt.Errorf("decoding a Node: %w", err)
	}
	return after, nil
}

// judgeGuarded judges a rejection by the policy that protects records and overrides.
func judgeGuarded(h *revisions.History, r *revisions.Request) Outcome {
	outcome := Outcome{Wrong, "the request changes neither records nor overrides: " + r.Message}
	known := each(h, r, func(before, after *corev1.Node) {
		switch {
		case !maps.Equal(guarded(before), guarded(after)):
			outcome = Outcome{Protected, "rejected changes of records and overrides"}
		case outcome.Result == Wrong && max(len(before.Annotations), len(after.Annotations)) > many && !maps.Equal(before.Annotations, after.Annotations):
			outcome = Outcome{Protected, "rejected changes of annotations of Nodes with more than 1024"}
		}
	})
	if !known {
		return Outcome{Unclear, "rejected requests that cannot be applied to a state of the Node"}
	}
	return outcome
}

// guarded returns the records and overrides of a Node.
func guarded(node *corev1.Node) map[string]string {
	all := maps.Clone(node.Annotations)
	maps.DeleteFunc(all, func(key, _ string) bool {
		return !strings.HasPrefix(key, v1alpha1.RecordAnnotationPrefix) && !strings.HasPrefix(key, v1alpha1.OverrideAnnotationPrefix)
	})
	return all
}

// judgeTaints judges a request that NodeRestriction rejected because of a change of taints. If
// the request contains none, a policy added it.
func judgeTaints(h *revisions.History, r *revisions.Request) Outcome {
	outcome := Outcome{Wrong, "the request changes no taints: " + r.Message}
	known := each(h, r, func(before, after *corev1.Node) {
		if !reflect.DeepEqual(before.Spec.Taints, after.Spec.Taints) {
			outcome = Outcome{}
		}
	})
	if !known {
		return Outcome{Unclear, "rejected requests that cannot be applied to a state of the Node"}
	}
	return outcome
}

// Topic returns what a request is, if nodes need such requests; otherwise "".
func Topic(r *revisions.Request) string {
	switch {
	case r.Resource == "nodes" && r.Verb == "create":
		return "registrations of nodes"
	case r.Resource == "nodes" && strings.HasPrefix(r.Verb, "delete"):
		return "deletions of Nodes"
	case r.Resource == "nodes":
		return "changes of Nodes"
	case r.Resource == "nodes/status":
		return "reports of nodes' status"
	case r.Resource == "leases" && r.Namespace == corev1.NamespaceNodeLease:
		return "writes of nodes' Leases"
	case r.Resource == "csinodes":
		return "writes of CSINodes"
	}
	return ""
}

// IsExempt reports whether nodegate rejects no such request of this user, who has the permission to
// write records and overrides. It then shows nothing.
func IsExempt(r *revisions.Request, operators []string) bool {
	return isNode(r) && (r.Verb == "update" || r.Verb == "patch") && (r.IsMaster || slices.Contains(operators, r.User))
}
