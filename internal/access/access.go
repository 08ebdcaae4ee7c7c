// SPDX-License-Identifier: Apache-2.0

// Package access serves the metrics and the health probes. Metrics are served only to
// clients that the API server authenticates and authorizes, by TokenReview and
// SubjectAccessReview. It does what controller-runtime's metrics filter does, without the
// API server's libraries (docs/decisions/0040-metrics-ask-the-api-server.md), and limits the
// memory that clients can make both ports use.
package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// allowedFor and deniedFor are the times for which a decision is reused. A revoked token
	// can still be used for up to allowedFor.
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
	// maxDecisions limits the cached decisions of each kind.
	maxDecisions = 1024
	// maxReviews limits the clients that are reviewed concurrently. Reviews share the API
	// server's queue with nodegate's patches, and every client that can reach the port can
	// cause them.
	maxReviews = 2
	// reviewTimeout limits the time that a client waits for a decision.
	reviewTimeout = 10 * time.Second
)

// Reviewer creates reviews, to which the API server adds the result. A client.Client is one.
type Reviewer interface {
	Create(ctx context.Context, review client.Object, options ...client.CreateOption) error
}

// A Filter admits clients that are authorized to get the requested path, as a
// nonResourceURL. Clients authenticate with a bearer token.
type Filter struct {
	reviewer Reviewer
	log      logr.Logger
	reviews  chan struct{} // contains one element for each client that is being reviewed
	// Denials are cached separately, so that clients without access cannot evict the
	// decisions about clients with access.
	allowed, denied *cache.LRUExpireCache
}

// New returns a Filter that uses the reviewer.
func New(reviewer Reviewer, log logr.Logger) *Filter {
	return &Filter{
		reviewer: reviewer, log: log, reviews: make(chan struct{}, maxReviews),
		allowed: cache.NewLRUExpireCache(maxDecisions), denied: cache.NewLRUExpireCache(maxDecisions),
	}
}

// key is the hash of a token and a path, so that no token is kept in memory.
type key [sha256.Size]byte

// Wrap returns a handler that passes requests of authorized clients to next. It answers
// other requests with 401 (no valid token), 403 (not authorized) or 503 (the API server did
// not answer).
func (f *Filter) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusMethodNotAllowed
		if r.Method == http.MethodGet {
			status = f.decide(r.Context(), bearerToken(r), r.URL.Path)
		}
		switch status {
		case http.StatusOK:
			next.ServeHTTP(w, r)
			return
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, explanations[status], status)
	})
}

var explanations = map[int]string{
	http.StatusMethodNotAllowed:   "only GET is served here",
	http.StatusUnauthorized:       "send a token that the API server accepts, as 'Authorization: Bearer TOKEN'",
	http.StatusForbidden:          "this token lacks the verb get on this nonResourceURL: bind its user to ClusterRole nodegate-metrics-reader",
	http.StatusServiceUnavailable: "the API server did not authorize or reject this token in time; try again",
}

func bearerToken(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// decide returns the status of the answer to a client: OK if it is authorized to get the
// path.
func (f *Filter) decide(ctx context.Context, token, path string) int {
	if token == "" {
		return http.StatusUnauthorized
	}
	k := key(sha256.Sum256([]byte(token + "\n" + path))) // tokens contain no line break
	if _, ok := f.allowed.Get(k); ok {
		return http.StatusOK
	}
	if status, ok := f.denied.Get(k); ok {
		return status.(int)
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	status, err := f.review(ctx, token, path)
	switch {
	case err != nil:
		f.log.V(1).Info("cannot review a client of the metrics port", "error", err.Error())
		return http.StatusServiceUnavailable
	case status == http.StatusOK:
		f.allowed.Add(k, nil, allowedFor)
	default:
		f.denied.Add(k, status, deniedFor)
	}
	return status
}

var errBusy = errors.New("too many clients are being reviewed")

// review determines the user of the token, and whether the user may get the path.
func (f *Filter) review(ctx context.Context, token, path string) (status int, err error) {
	select {
	case f.reviews <- struct{}{}:
		defer func() { <-f.reviews }()
	case <-ctx.Done():
		return 0, errBusy
	}
	tokenReview := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := f.reviewer.Create(ctx, tokenReview); err != nil {
		return 0, fmt.Errorf("creating TokenReview: %w", err)
	}
	if !tokenReview.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := tokenReview.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	accessReview := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}
	if err := f.reviewer.Create(ctx, accessReview); err != nil {
		return 0, fmt.Errorf("creating SubjectAccessReview: %w", err)
	}
	if !accessReview.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
