// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
	"github.com/nodegate/nodegate/testcluster"
)

// auditPolicy logs the response to every write of the kinds that the judge reads. From
// these responses the judge derives the user and the time of each revision. Of all other
// requests, it logs who sent them and whether they were rejected.
//
//go:embed audit-policy.yaml
var auditPolicy string

// readAudit returns the requests in an audit log, from an offset, whose response is an
// object, and those that show whether nodes and nodegate can work, which may have been
// rejected. It skips dry runs.
func readAudit(path string, offset int64) (writes []revisions.Write, requests []revisions.Request, err error) {
	err = testcluster.ReadAuditFile(path, offset, func(event *auditv1.Event) error {
		if event.ResponseStatus == nil || event.ObjectRef == nil || testcluster.IsDryRun(event) {
			return nil
		}
		if isKept(event) {
			requests = append(requests, requestOf(event))
		}
		if event.ResponseStatus.Code > 299 {
			return nil
		}
		revision, err := strconv.ParseInt(testcluster.ResourceVersion(event), 10, 64)
		if err != nil {
			return nil //nolint:nilerr // the response is no object, or the object was deleted: no revision
		}
		verb := event.Verb
		if event.ObjectRef.Subresource != "" {
			verb += " " + event.ObjectRef.Subresource
		}
		writes = append(writes, revisions.Write{
			Revision: revision, User: event.User.Username, AuditID: string(event.AuditID), Verb: verb, NoRecords: !mentionsRecords(event),
			Sent: sentNode(event), Received: event.RequestReceivedTimestamp.Time, Done: event.StageTimestamp.Time,
		})
		return nil
	})
	return writes, requests, err
}

// isKept reports whether the judge needs the request, whatever the response: a write of what
// kubelets write about their nodes, or of what nodegate writes. Of other kinds, it needs only
// requests that were rejected.
func isKept(event *auditv1.Event) bool {
	switch event.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return false
	}
	switch event.ObjectRef.Resource {
	case "nodes", "csinodes", "leases", "podtemplates", "nodegates":
		return event.ResponseStatus.Message != closedEarly
	}
	return event.ResponseStatus.Code >= http.StatusBadRequest
}

// closedEarly is the message with which the API server logs, as carried out, a request that it
// did not answer.
const closedEarly = "Connection closed early"

func requestOf(event *auditv1.Event) revisions.Request {
	object := event.ObjectRef
	r := revisions.Request{
		User: event.User.Username, IsMaster: slices.Contains(event.User.Groups, user.SystemPrivilegedGroup),
		AuditID: string(event.AuditID), Verb: event.Verb, Resource: object.Resource, Namespace: object.Namespace, Name: object.Name,
		Code: event.ResponseStatus.Code, Received: event.RequestReceivedTimestamp.Time, Done: event.StageTimestamp.Time,
	}
	if object.Subresource != "" {
		r.Resource += "/" + object.Subresource
	}
	if r.Code >= http.StatusBadRequest {
		r.Message = event.ResponseStatus.Message
		if event.RequestObject != nil {
			r.Body = event.RequestObject.Raw
		}
	}
	return r
}

// sentNode returns the Node in a request that created one, without its status, or nil.
func sentNode(event *auditv1.Event) *corev1.Node {
	var node corev1.Node
	if event.Verb != "create" || event.ObjectRef.Resource != "nodes" || event.RequestObject == nil || json.Unmarshal(event.RequestObject.Raw, &node) != nil {
		return nil
	}
	node.Status = corev1.NodeStatus{}
	return &node
}

// mentionsRecords reports whether the request's body contains the key of a record
// annotation. It searches for the domain only, because JSON Patch escapes the slash
// after it.
func mentionsRecords(event *auditv1.Event) bool {
	domain := strings.TrimSuffix(v1alpha1.RecordAnnotationPrefix, "/")
	return event.RequestObject == nil || bytes.Contains(event.RequestObject.Raw, []byte(domain))
}
