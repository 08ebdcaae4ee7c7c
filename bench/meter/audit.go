// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/nodegate/nodegate/testcluster"
)

// AuditPolicy returns an audit policy that logs all requests of some users, and no
// others: logging those would cost more than the measured requests.
func AuditPolicy(users ...string) string {
	return fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["%s"]
- level: None
`, strings.Join(users, `", "`))
}

// A Request is a request that the API server has answered.
type Request struct {
	Verb        string
	Resource    string
	Subresource string
	Name        string
	Code        int
	DryRun      bool
	// Received is the time at which the API server received the request.
	Received time.Time
}

// Audit is the path of an API server's audit log.
type Audit string

// Mark returns the current length of the log.
func (a Audit) Mark() (int64, error) { return testcluster.AuditLength(string(a)) }

// Since returns the requests that have been answered since a mark. A watch is
// included after it has ended.
func (a Audit) Since(mark int64) ([]Request, error) {
	var requests []Request
	err := testcluster.ReadAuditFile(string(a), mark, func(e *auditv1.Event) error {
		r := Request{Verb: e.Verb, Received: e.RequestReceivedTimestamp.Time, DryRun: testcluster.IsDryRun(e)}
		if o := e.ObjectRef; o != nil {
			r.Resource, r.Subresource, r.Name = o.Resource, o.Subresource, o.Name
		}
		if e.ResponseStatus != nil {
			r.Code = int(e.ResponseStatus.Code)
		}
		requests = append(requests, r)
		return nil
	})
	return requests, err
}

// Count returns the number of requests for which is returns true.
func Count(requests []Request, is func(Request) bool) int {
	n := 0
	for _, r := range requests {
		if is(r) {
			n++
		}
	}
	return n
}

// NodeWrite reports whether a request changes a Node, but not only its status or another
// subresource. The response may be an error.
func NodeWrite(r Request) bool {
	return (r.Verb == "patch" || r.Verb == "update") && r.Resource == "nodes" && r.Subresource == "" && !r.DryRun
}

// NodePatch reports whether a request is a PATCH of a Node, as nodegate sends it to
// write taints: not of a subresource, and not a dry run. The response may be an error.
func NodePatch(r Request) bool {
	return r.Verb == "patch" && NodeWrite(r)
}
