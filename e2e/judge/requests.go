// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/e2e/judge/rejections"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// judgeRequests judges that nodegate rejects no request that a node needs (S5), nor one of its
// own (S6), and that it deletes no Node (S2).
func (t *trial) judgeRequests() {
	for i := range t.Requests {
		r := &t.Requests[i]
		own := r.User == t.Controller
		rule, what, outcome := RuleNodes, rejections.Topic(r), rejections.Outcome{}
		switch {
		case own:
			rule, what, outcome = RuleLockout, "requests of nodegate", rejections.JudgeOwn(t.History, r)
			if strings.HasPrefix(r.Verb, "delete") && r.Resource == "nodes" && r.Code < http.StatusBadRequest {
				t.requestViolation(RuleForeign, r, "is carried out", "nodegate may not delete Nodes")
			}
		case what == "":
			continue
		default:
			outcome = rejections.Judge(t.History, r)
		}
		switch outcome.Result {
		case rejections.Passed:
			if r.Code < http.StatusBadRequest && (own || !rejections.IsExempt(r, t.Operators)) {
				t.checked(rule, what)
			}
		case rejections.Protected:
			t.checked(rule, outcome.Why)
		case rejections.Wrong:
			t.checked(rule, what)
			t.requestViolation(rule, r, fmt.Sprintf("is rejected (%d)", r.Code), outcome.Why)
		case rejections.Unclear:
			t.notJudged(rule, outcome.Why)
		}
	}
}

// requestViolation adds a violation by a request that wrote nothing, or no Node, to the verdict.
func (t *trial) requestViolation(rule Rule, r *revisions.Request, how, why string) {
	v := Violation{Rule: rule, Revision: t.Reached(r.Done), At: r.Done, Why: why}
	v.Who = fmt.Sprintf("%s (%s, audit ID %s)", r.User, r.Verb, r.AuditID)
	v.What = fmt.Sprintf("%s of %s %s", r.Verb, r.Resource, how)
	if rejections.Topic(r) != "" {
		v.Node = r.Name
	}
	t.verdict.Violations = append(t.verdict.Violations, v)
}

// judgeFinalizers judges that no Node gets a finalizer of nodegate (S5).
func (t *trial) judgeFinalizers(c *change) {
	for _, finalizer := range c.after.Finalizers {
		domain, _, _ := strings.Cut(finalizer, "/")
		isNew := c.before == nil || !slices.Contains(c.before.Finalizers, finalizer)
		if isNew && (domain == "nodegate.dev" || strings.HasSuffix(domain, ".nodegate.dev")) {
			t.violation(RuleNodes, c, "", "finalizer "+finalizer+" is added", "the Node cannot be deleted until it is removed")
		}
	}
}
