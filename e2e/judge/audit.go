// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster"
)

// AuditPolicy is the audit policy that a run needs in order to be judged. It logs the
// response to every write of the kinds that the judge reads. From these responses the
// judge derives the user and the time of each revision.
//
//go:embed audit-policy.yaml
var AuditPolicy string

// ReadAudit returns the requests in an audit log whose response is an object. It
// skips dry runs and rejected requests, which create no revision.
func ReadAudit(log io.Reader) ([]Write, error) {
	var writes []Write
	err := testcluster.ReadAudit(log, func(event *auditv1.Event) error {
		if event.ResponseObject == nil || event.ResponseStatus == nil || event.ResponseStatus.Code > 299 || isDryRun(event.RequestURI) {
			return nil
		}
		var answer struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(event.ResponseObject.Raw, &answer); err != nil {
			return fmt.Errorf("reading the response to request %s: %w", event.AuditID, err)
		}
		revision, err := strconv.ParseInt(answer.Metadata.ResourceVersion, 10, 64)
		if err != nil { // the response to a deletion has no resourceVersion
			return nil //nolint:nilerr // not an error
		}
		verb := event.Verb
		if event.ObjectRef != nil && event.ObjectRef.Subresource != "" {
			verb += " " + event.ObjectRef.Subresource
		}
		writes = append(writes, Write{
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

func isDryRun(uri string) bool {
	u, err := url.ParseRequestURI(uri)
	return err == nil && u.Query().Get("dryRun") != ""
}
