// SPDX-License-Identifier: Apache-2.0

package read

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The node agent is unconfined only if it may write the status of Nodes and no policy denies.
func TestAgentUnconfined(t *testing.T) {
	writes := &rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}, Rules: []rbacv1.PolicyRule{
		{Resources: []string{"nodes"}, Verbs: []string{"list"}}, {Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
	}}
	reads := writes.DeepCopy()
	reads.Rules = reads.Rules[:1]
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"}}
	binding := func(action admissionregistrationv1.ValidationAction) runtime.Object {
		b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"}}
		b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{action}
		return b
	}
	const roles, policies, bindings = "clusterroles", "validatingadmissionpolicies", "validatingadmissionpolicybindings"
	denies, warns := binding(admissionregistrationv1.Deny), binding(admissionregistrationv1.Warn)
	for name, c := range map[string]struct {
		objects             map[string]runtime.Object
		forbidden           string
		want, installed, ok bool
	}{
		"no agent":                {nil, "", false, false, true},
		"it writes nothing":       {map[string]runtime.Object{roles: reads}, "", false, true, true},
		"confined":                {map[string]runtime.Object{roles: writes, policies: policy, bindings: denies}, "", false, true, true},
		"no policy":               {map[string]runtime.Object{roles: writes, bindings: denies}, "", true, true, true},
		"no binding":              {map[string]runtime.Object{roles: writes, policies: policy}, "", true, true, true},
		"the binding only warns":  {map[string]runtime.Object{roles: writes, policies: policy, bindings: warns}, "", true, true, true},
		"no permission for roles": {nil, roles, false, false, false},
		"no permission":           {map[string]runtime.Object{roles: writes}, policies, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				resource, _ := strings.CutSuffix(r.URL.Path, "/nodegate-agent")
				resource = resource[strings.LastIndex(resource, "/")+1:]
				w.Header().Set("Content-Type", runtime.ContentTypeJSON)
				object := c.objects[resource]
				switch {
				case resource == c.forbidden:
					w.WriteHeader(http.StatusForbidden)
					object = &apierrors.NewForbidden(rbacv1.Resource(resource), "nodegate-agent", nil).ErrStatus
				case object == nil:
					w.WriteHeader(http.StatusNotFound)
					object = &apierrors.NewNotFound(rbacv1.Resource(resource), "nodegate-agent").ErrStatus
				}
				_ = json.NewEncoder(w).Encode(object)
			}))
			role, roleErr := r.AgentRole(t.Context())
			got, err := r.AgentUnconfined(t.Context(), role)
			if err = errors.Join(roleErr, err); got != c.want || (role != nil) != c.installed || (err == nil) != c.ok {
				t.Errorf("unconfined %v, role %v, %v", got, role, err)
			}
		})
	}
}
