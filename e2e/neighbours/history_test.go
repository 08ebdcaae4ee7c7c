// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/testcluster"
)

// now returns the current position in etcd's history and in the audit log.
func (s *site) now() recording.Position {
	s.Helper()
	etcd, err := recording.Connect(s.cluster)
	s.must(err)
	defer etcd.Close()
	now, err := recording.Now(s.Context(), etcd, s.cluster.AuditLog())
	s.must(err)
	return now
}

// judge lets the judge check the test from the API server's own data: no gate opened too early,
// no Node was visible without its gate's taint, and nodegate changed nothing of others.
func (s *site) judge() {
	etcd, err := recording.Connect(s.cluster)
	s.must(err)
	defer etcd.Close()
	history, err := recording.Read(context.WithoutCancel(s.Context()), etcd, s.cluster.AuditLog(), s.since)
	s.must(err)
	verdict := judge.Judge(history, judge.Config{Controller: shared.installation.Username(), Lag: lag, Quiet: time.Hour})
	for _, violation := range verdict.Violations {
		s.Errorf("the judge found a violation: %s", violation)
	}
	if len(verdict.Checked[judge.RuleOpening]) == 0 {
		s.Error("the judge saw no opening")
	}
}

// requests returns the successful requests of a user since a position.
func (s *site) requests(since recording.Position, user, verb, resource, subresource string) (found []*auditv1.Event) {
	s.Helper()
	s.must(testcluster.ReadAuditFile(s.cluster.AuditLog(), since.Logged, func(event *auditv1.Event) error {
		ref := event.ObjectRef
		if ref != nil && event.User.Username == user && event.Verb == verb && ref.Resource == resource && ref.Subresource == subresource &&
			event.ResponseStatus.Code/100 == 2 && !testcluster.IsDryRun(event) {
			found = append(found, event)
		}
		return nil
	}))
	return found
}

// evicted returns the names of the pods that a user has evicted since a position.
func (s *site) evicted(since recording.Position, user string) map[string]bool {
	s.Helper()
	names := make(map[string]bool)
	for _, event := range s.requests(since, user, "create", "pods", "eviction") {
		names[event.ObjectRef.Name] = true
	}
	return names
}
