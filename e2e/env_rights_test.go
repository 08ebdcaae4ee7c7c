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

// rights are the permissions of a user.
type rights map[right]bool

// right is a permission. An empty name or namespace stands for all.
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

// minus returns the permissions that are not among others.
func (rs rights) minus(others rights) (all []string) {
	for r := range rs {
		if !others[r] {
			all = append(all, r.String())
		}
	}
	slices.Sort(all)
	return all
}

// allows reports whether requests for all objects of the resource are allowed.
func (rs rights) allows(verb, resource, namespace string) bool {
	return rs[right{verb, resource, "", ""}] || namespace != "" && rs[right{verb, resource, "", namespace}]
}

// rights returns the attacker's permissions according to the API server.
func (a *attacker) rights() rights {
	a.Helper()
	all := rights{}
	for _, namespace := range []string{metav1.NamespaceSystem, installation.Namespace, metav1.NamespaceDefault, daemonNamespace} {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		a.must(a.api.Create(a.Context(), review))
		if review.Status.Incomplete {
			a.Fatalf("the API server's list of permissions is incomplete: %s", review.Status.EvaluationError)
		}
		for _, rule := range review.Status.ResourceRules {
			all.add(&rule, namespace)
		}
	}
	return all
}

// add adds what a rule allows in a namespace. kube-system comes first, where nodegate has no
// permissions of its own: what is allowed there is allowed in all namespaces.
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

// qualified returns a resource in kubectl's form, with its subresource at the end.
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

// tryEverythingBut tries each verb on each resource that the API server serves, except what
// the permissions allow.
func (a *attacker) tryEverythingBut(rights rights) {
	a.Helper()
	api, err := discovery.NewDiscoveryClientForConfig(a.cluster.Admin())
	a.must(err)
	_, lists, err := api.ServerGroupsAndResources()
	a.must(err)
	tried := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		a.must(err)
		for i := range list.APIResources {
			tried += a.tryAll(gv, &list.APIResources[i], rights)
		}
	}
	a.Logf("%d requests were sent", tried)
	if tried < 1000 {
		a.Errorf("%d requests were sent, want at least 1000", tried)
	}
}

// tryAll tries all verbs on a resource, and returns the number of requests.
func (a *attacker) tryAll(gv schema.GroupVersion, r *metav1.APIResource, rights rights) (tried int) {
	a.Helper()
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
			collection = one // creating a subresource requires the object's name
		}
		for _, try := range attemptsAt(collection, one, isSub) {
			if rights.allows(try.verb, qualified(gv.Group, r.Name), namespace) {
				continue
			}
			tried++
			if status, text := a.send(&try); status != http.StatusForbidden || !strings.Contains(text, "cannot "+try.verb) {
				a.Errorf("%s %s (%s): %d %s", try.method, try.path, try.verb, status, text)
			}
		}
	}
	return tried
}

// attempt is a request.
type attempt struct{ verb, method, path, contentType string }

// attemptsAt returns a request for each verb and patch type.
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

// send sends a request, and returns the response's status code and the start of its body.
func (a *attacker) send(try *attempt) (status int, text string) {
	a.Helper()
	request, err := http.NewRequestWithContext(a.Context(), try.method, a.config.Host+try.path, strings.NewReader("{}"))
	a.must(err)
	request.Header.Set("Content-Type", try.contentType)
	response, err := a.http.Do(request)
	a.must(err)
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	a.must(err)
	return response.StatusCode, string(body)
}
