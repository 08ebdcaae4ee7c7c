// SPDX-License-Identifier: Apache-2.0

// Package access serves HTTP only to clients that the API server authenticates and
// authorizes, by TokenReview and SubjectAccessReview. It does what controller-runtime's
// metrics filter does, without the API server's libraries
// (docs/decisions/0040-metrics-ask-the-api-server.md).
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
	// allowedFor and deniedFor are how long a decision is reused. A token that is
	// revoked keeps its access for as long as allowedFor.
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
	// maxDecisions bounds the decisions that are kept, of either kind.
	maxDecisions = 1024
	// maxReviews is how many clients are reviewed at a time. Reviews share the API
	// server's queue with nodegate's patches, and anyone who reaches the port can
	// cause them.
	maxReviews = 2
	// reviewTimeout is how long a client waits for its decision.
	reviewTimeout = 10 * time.Second
)

// Reviewer creates reviews, which the API server fills in. A client.Client is one.
type Reviewer interface {
	Create(ctx context.Context, review client.Object, options ...client.CreateOption) error
}

// A Filter lets clients pass that may get the path that they ask for, as a
// nonResourceURL. Clients authenticate with a bearer token.
type Filter struct {
	reviewer Reviewer
	log      logr.Logger
	reviews  chan struct{} // holds one element for each client that is being reviewed
	// Denied decisions are kept apart, so that clients without access cannot evict those
	// of clients with access.
	allowed, denied *cache.LRUExpireCache
}

// New returns a filter that asks the API server by the reviewer.
func New(reviewer Reviewer, log logr.Logger) *Filter {
	return &Filter{
		reviewer: reviewer, log: log, reviews: make(chan struct{}, maxReviews),
		allowed: cache.NewLRUExpireCache(maxDecisions), denied: cache.NewLRUExpireCache(maxDecisions),
	}
}

// key is the hash of a token and a path, so that no token is kept in memory.
type key [sha256.Size]byte

// Wrap returns a handler that passes requests of authorized clients to next.
// It answers others with 401 (no valid token), 403 (no right) or 503 (the API server
// did not answer).
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
	http.StatusServiceUnavailable: "the API server did not answer whether this token may read this; try again",
}

func bearerToken(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// decide returns the status of the answer to a client: OK if it may get the path.
func (f *Filter) decide(ctx context.Context, token, path string) int {
	if token == "" {
		return http.StatusUnauthorized
	}
	k := key(sha256.Sum256([]byte(token + "\n" + path))) // no token has a line break
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

// review asks the API server who has the token, and whether that user may get the path.
func (f *Filter) review(ctx context.Context, token, path string) (status int, err error) {
	select {
	case f.reviews <- struct{}{}:
		defer func() { <-f.reviews }()
	case <-ctx.Done():
		return 0, errBusy
	}
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := f.reviewer.Create(ctx, who); err != nil {
		return 0, fmt.Errorf("creating TokenReview: %w", err)
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}
	if err := f.reviewer.Create(ctx, may); err != nil {
		return 0, fmt.Errorf("creating SubjectAccessReview: %w", err)
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
