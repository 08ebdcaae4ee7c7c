// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/nodegate/nodegate/testcluster"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// AuditPolicy makes the API server log every request of one user: of nodegate, or
// of the limit with nodegate's name. It logs no other users' requests, which
// would cost more than the measured ones.
func AuditPolicy(user string) string {
	return fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [%q]
- level: None
`, user)
}

// A Request is a request that the API server answered.
type Request struct {
	Verb        string
	Resource    string
	Subresource string
	Name        string
	Code        int
	UserAgent   string
	DryRun      bool
	// Received is the time at which the API server received it.
	Received time.Time
}

// An Audit is an API server's audit log.
type Audit struct {
	// Path is the path of the log file.
	Path string
}

// A Mark is a position in the log.
type Mark int64

// Mark returns the current end of the log.
func (a Audit) Mark() (Mark, error) {
	info, err := os.Stat(a.Path)
	if err != nil {
		return 0, fmt.Errorf("reading the audit log: %w", err)
	}
	return Mark(info.Size()), nil
}

// Since returns the requests that were answered since a mark. It includes watches
// only after they have ended.
func (a Audit) Since(mark Mark) ([]Request, error) {
	file, err := os.Open(a.Path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(int64(mark), io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return parseAudit(file)
}

func parseAudit(log io.Reader) ([]Request, error) {
	var requests []Request
	err := testcluster.ReadAudit(log, func(e *auditv1.Event) error {
		r := Request{Verb: e.Verb, UserAgent: e.UserAgent, Received: e.RequestReceivedTimestamp.Time, DryRun: dryRun(e.RequestURI)}
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

// dryRun reports whether a request was a dry run.
func dryRun(uri string) bool {
	address, err := url.Parse(uri)
	return err == nil && address.Query().Has("dryRun")
}

// Count returns the number of requests that satisfy a predicate.
func Count(requests []Request, is func(Request) bool) int {
	n := 0
	for _, r := range requests {
		if is(r) {
			n++
		}
	}
	return n
}

// NodePatch reports whether a request is a PATCH of a node of the kind that
// nodegate sends to write taints, successful or not, and not a dry run.
func NodePatch(r Request) bool {
	return r.Verb == "patch" && r.Resource == "nodes" && r.Subresource == "" && !r.DryRun
}
