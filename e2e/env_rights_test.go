// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// rights are the permissions of a user: the scopes by verb and resource.
type rights map[right]bool

// right is one of them. No name or namespace is any.
type right struct{ verb, resource, name, namespace string }

func (r right) String() string {
	text := r.verb + " " + r.resource
	if r.name != "" {
		text += " " + r.name
	}
	if r.namespace != "" {
		text += " in " + r.namespace
	}
	return text
}

// but lists the rights that others have not.
func (rs rights) but(others rights) (all []string) {
	for r := range rs {
		if !others[r] {
			all = append(all, r.String())
		}
	}
	slices.Sort(all)
	return all
}

// allows reports whether a request for any object of the kind is allowed.
func (rs rights) allows(verb, resource, namespace string) bool {
	return rs[right{verb, resource, "", ""}] || namespace != "" && rs[right{verb, resource, "", namespace}]
}

// rights returns the thief's permissions according to the API server.
func (th *thief) rights() rights {
	th.Helper()
	all := rights{}
	for _, namespace := range []string{metav1.NamespaceSystem, installation.Namespace, metav1.NamespaceDefault, daemonNamespace} {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		th.must(th.api.Create(th.Context(), review))
		if review.Status.Incomplete {
			th.Fatalf("the API server does not know all rights: %s", review.Status.EvaluationError)
		}
		for _, rule := range review.Status.ResourceRules {
			all.add(&rule, namespace)
		}
	}
	return all
}

// add adds what a rule allows in a namespace. What was allowed in kube-system, the
// first that is asked for, is allowed everywhere: nodegate has no right of its own
// there.
func (rs rights) add(rule *authorizationv1.ResourceRule, namespace string) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range rule.Verbs {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					r := right{verb: verb, resource: qualified(group, resource), name: name}
					if namespace != metav1.NamespaceSystem && !rs[r] {
						r.namespace = namespace
					}
					rs[r] = true
				}
			}
		}
	}
}

// qualified is a resource as kubectl names it, with its subresource at the end.
func qualified(group, resource string) string {
	resource, sub, has := strings.Cut(resource, "/")
	if group != "" {
		resource += "." + group
	}
	if has {
		resource += "/" + sub
	}
	return resource
}

// tryEverythingBut tries each verb on each resource that the API server knows, but
// for what there is a right to.
func (th *thief) tryEverythingBut(rights rights) {
	th.Helper()
	known, err := discovery.NewDiscoveryClientForConfig(th.cluster.Admin())
	th.must(err)
	_, lists, err := known.ServerGroupsAndResources()
	th.must(err)
	tried := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		th.must(err)
		for i := range list.APIResources {
			tried += th.tryAll(gv, &list.APIResources[i], rights)
		}
	}
	th.Logf("%d requests were tried", tried)
	if tried < 1000 {
		th.Errorf("only %d requests were tried", tried)
	}
}

// tryAll tries all verbs on a resource, and returns how many.
func (th *thief) tryAll(gv schema.GroupVersion, r *metav1.APIResource, rights rights) (tried int) {
	th.Helper()
	resource, sub, isSub := strings.Cut(r.Name, "/")
	namespaces := []string{""}
	if r.Namespaced {
		namespaces = []string{installation.Namespace, metav1.NamespaceSystem}
	}
	for _, namespace := range namespaces {
		collection := "/apis/" + gv.String()
		if gv.Group == "" {
			collection = "/api/" + gv.Version
		}
		if namespace != "" {
			collection += "/namespaces/" + namespace
		}
		collection += "/" + resource
		one := collection + "/any"
		if isSub {
			one += "/" + sub
			collection = one // what creates by a subresource names the object
		}
		for _, try := range attemptsAt(collection, one, isSub) {
			if rights.allows(try.verb, qualified(gv.Group, r.Name), namespace) {
				continue
			}
			tried++
			if status, text := th.send(&try); status != http.StatusForbidden || !strings.Contains(text, "cannot "+try.verb) {
				th.Errorf("%s %s (%s): %d %s", try.method, try.path, try.verb, status, text)
			}
		}
	}
	return tried
}

// attempt is one request.
type attempt struct{ verb, method, path, contentType string }

func attemptsAt(collection, one string, isSub bool) []attempt {
	all := []attempt{
		{"create", http.MethodPost, collection, "application/json"},
		{"update", http.MethodPut, one, "application/json"},
		{"delete", http.MethodDelete, one, "application/json"},
		{"get", http.MethodGet, one, ""},
	}
	for _, patchType := range patchTypes {
		all = append(all, attempt{"patch", http.MethodPatch, one, string(patchType)})
	}
	if !isSub {
		all = append(all,
			attempt{"deletecollection", http.MethodDelete, collection, "application/json"},
			attempt{"list", http.MethodGet, collection, ""},
			attempt{"watch", http.MethodGet, collection + "?watch=true", ""},
		)
	}
	return all
}

func (th *thief) send(a *attempt) (status int, text string) {
	th.Helper()
	request, err := http.NewRequestWithContext(th.Context(), a.method, th.config.Host+a.path, strings.NewReader("{}"))
	th.must(err)
	request.Header.Set("Content-Type", a.contentType)
	response, err := th.http.Do(request)
	th.must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	th.must(err)
	return response.StatusCode, string(body)
}
