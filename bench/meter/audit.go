// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/nodegate/nodegate/cluster"
)

// AuditPolicy has the API server note every request of one user, nodegate's or
// the limit's in its name, and none of anybody else's, which would cost it more
// than the requests that are measured.
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

// A Request is one that the API server answered.
type Request struct {
	Verb        string
	Resource    string
	Subresource string
	Name        string
	Code        int
	UserAgent   string
	DryRun      bool
	// Received is when the API server got it.
	Received time.Time
}

// An Audit is an API server's audit log.
type Audit struct {
	// Path is where it is.
	Path string
}

// A Mark is a place in the log.
type Mark int64

// Mark returns the log's present end.
func (a Audit) Mark() (Mark, error) {
	info, err := os.Stat(a.Path)
	if err != nil {
		return 0, fmt.Errorf("reading the audit log: %w", err)
	}
	return Mark(info.Size()), nil
}

// Since returns the requests that were answered since a mark, watches included
// only once they have ended.
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
	err := cluster.ReadAudit(log, func(e *auditv1.Event) error {
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

// dryRun tells whether a request asked for nothing to be stored.
func dryRun(uri string) bool {
	address, err := url.Parse(uri)
	return err == nil && address.Query().Has("dryRun")
}

// Count returns how many requests are of a kind.
func Count(requests []Request, is func(Request) bool) int {
	n := 0
	for _, r := range requests {
		if is(r) {
			n++
		}
	}
	return n
}

// NodePatch tells whether a request is a PATCH of a node, as nodegate writes
// taints, answered with success or not, that was no dry run.
func NodePatch(r Request) bool {
	return r.Verb == "patch" && r.Resource == "nodes" && r.Subresource == "" && !r.DryRun
}
