// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	_ "embed"
	"strconv"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
	"github.com/nodegate/nodegate/testcluster"
)

// auditPolicy logs the response to every write of the kinds that the judge reads. From
// these responses the judge derives the user and the time of each revision.
//
//go:embed audit-policy.yaml
var auditPolicy string

// readAudit returns the requests in an audit log, from an offset, whose response is an
// object. It skips dry runs and rejected requests, which create no revision.
func readAudit(path string, offset int64) ([]revisions.Write, error) {
	var writes []revisions.Write
	err := testcluster.ReadAuditFile(path, offset, func(event *auditv1.Event) error {
		if event.ResponseStatus == nil || event.ResponseStatus.Code > 299 || testcluster.IsDryRun(event) {
			return nil
		}
		revision, err := strconv.ParseInt(testcluster.ResourceVersion(event), 10, 64)
		if err != nil {
			return nil //nolint:nilerr // the response is no object, or the object was deleted: no revision
		}
		verb := event.Verb
		if event.ObjectRef != nil && event.ObjectRef.Subresource != "" {
			verb += " " + event.ObjectRef.Subresource
		}
		writes = append(writes, revisions.Write{
			Revision: revision, User: event.User.Username, AuditID: string(event.AuditID), Verb: verb, NoRecords: !mentionsRecords(event),
			Received: event.RequestReceivedTimestamp.Time, Done: event.StageTimestamp.Time,
		})
		return nil
	})
	return writes, err
}

// mentionsRecords reports whether the request's body contains the key of a record
// annotation. It searches for the domain only, because JSON Patch escapes the slash
// after it.
func mentionsRecords(event *auditv1.Event) bool {
	domain := strings.TrimSuffix(v1alpha1.RecordAnnotationPrefix, "/")
	return event.RequestObject == nil || bytes.Contains(event.RequestObject.Raw, []byte(domain))
}
