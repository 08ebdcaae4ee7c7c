// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

const (
	recordA = `{"state":"Closed","reason":"Birth","taint":"example.com/a:NoSchedule","source":"crd"}`
	gpuOnly = "pool=gpu"
)

func newGate(name, key, selector string) gate.Gate {
	s, err := labels.Parse(selector)
	if err != nil {
		panic(err)
	}
	return gate.Gate{Name: name, Source: v1alpha1.SourceCRD, Accepted: true, Selector: s,
		Taint: v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}}
}

var twoGates = []gate.Gate{newGate("a", "example.com/a", ""), newGate("gpu", "example.com/gpu", gpuOnly)}

func known(gates ...gate.Gate) func() ([]gate.Gate, bool) {
	return func() ([]gate.Gate, bool) { return gates, true }
}

// review returns the API server's request for the creation of an object.
func review(object string) string {
	return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","name":"n",
		"resource":{"group":"","version":"v1","resource":"nodes"},"operation":"CREATE","object":%s}}`, object)
}

func ask(t testing.TB, h *Handler, body string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/birth", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, request)
	return answer
}

// answered returns the response, which must be allowed.
func answered(t testing.TB, answer *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil || answer.Code != http.StatusOK {
		t.Fatalf("status %d, %v: %s", answer.Code, err, answer.Body)
	}
	if r := review.Response; review.Kind != "AdmissionReview" || review.APIVersion != "admission.k8s.io/v1" || r == nil || !r.Allowed || r.UID != "u" {
		t.Fatalf("the answer does not allow the request: %s", answer.Body)
	}
	return review.Response
}

// apply applies a response's patch as the API server does.
func apply(t testing.TB, object string, response *admissionv1.AdmissionResponse) string {
	t.Helper()
	if len(response.Patch) == 0 {
		return object
	}
	p, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatalf("invalid patch: %v: %s", err, response.Patch)
	}
	out, err := p.Apply([]byte(object))
	if err != nil {
		t.Fatalf("the patch does not apply: %v\n%s\n%s", err, response.Patch, object)
	}
	return string(out)
}

// Nodes get the taints and records. Their other fields do not change.
func TestNodes(t *testing.T) {
	h := &Handler{Gates: known(twoGates...), Log: testr.New(t)}
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	a := `"gate.nodegate.dev/a":` + quoted(recordA)
	many := strings.Repeat(`{"key":"x","effect":"NoSchedule"},`, maxTaints) + `{"key":"y","effect":"NoSchedule"}`
	full := `"big":"` + strings.Repeat("x", maxAnnotationsBytes-10) + `"`
	gpu := strings.NewReplacer("example.com/a", "example.com/gpu", "gate.nodegate.dev/a", "gate.nodegate.dev/gpu").Replace(a)
	labelled := `"labels":{` + numbered(20_000) + `"pool":"gpu"}`
	for name, test := range map[string]struct{ object, want string }{
		"bare":                       {`{"metadata":{}}`, `{"metadata":{"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"nulls":                      {`{"metadata":{"annotations":null},"spec":{"taints":null}}`, `{"metadata":{"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"foreign and unknown fields": {`{"new":1,"metadata":{"annotations":{"b":"c"},"new":[2]},"spec":{"new":{},"taints":[{"key":"x","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z","new":3}]}}`, `{"new":1,"metadata":{"annotations":{"b":"c",` + a + `},"new":[2]},"spec":{"new":{},"taints":[{"key":"x","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z","new":3},{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"a wrong value":              {`{"metadata":{},"spec":{"taints":[{"key":"example.com/a","value":"x","effect":"NoSchedule"}]}}`, `{"metadata":{"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","value":"x","effect":"NoSchedule"}]}}`},
		"already closed":             {`{"metadata":{"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`, `{"metadata":{"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"records in the request":     {`{"metadata":{"annotations":{"gate.nodegate.dev/a":"x","gate.nodegate.dev/gpu":"x","gate.nodegate.dev/z":"x"}},"spec":{}}`, `{"metadata":{"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"many labels":                {`{"metadata":{` + labelled + `,"annotations":{"gate.nodegate.dev/a":"x"}},"spec":{}}`, `{"metadata":{` + labelled + `,"annotations":{` + a + `,` + gpu + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"},{"key":"example.com/gpu","effect":"NoSchedule"}]}}`},
		"a label twice":              {`{"metadata":{"labels":{"pool":"gpu","pool":"x"}},"spec":{}}`, `{"metadata":{"labels":{"pool":"x"},"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"a label with a colon":       {`{"metadata":{"labels":{"pool:x":"gpu","x\\\"pool\":":"gpu"}},"spec":{}}`, `{"metadata":{"labels":{"pool:x":"gpu","x\\\"pool\":":"gpu"},"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"an escaped label":           {`{"metadata":{"labels":{"p\u006fol" : "\u0067pu"}},"spec":{}}`, `{"metadata":{"labels":{"pool":"gpu"},"annotations":{` + a + `,` + gpu + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"},{"key":"example.com/gpu","effect":"NoSchedule"}]}}`},
		"opted out, many labels":     {`{"metadata":{"labels":{` + numbered(20_000) + `"node-restriction.kubernetes.io/nodegate-opt-out":"true"},"annotations":{"gate.nodegate.dev/a":"x"}}}`, `{"metadata":{"labels":{` + numbered(20_000) + `"node-restriction.kubernetes.io/nodegate-opt-out":"true"},"annotations":{}}}`},
		"JSON in the boot ID":        {`{"metadata":{},"status":{"nodeInfo":{"bootID":"x\",\"state\":\"Open"}}}`, `{"metadata":{"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]},"status":{"nodeInfo":{"bootID":"x\",\"state\":\"Open"}}}`},
		"no space for a record":      {`{"metadata":{"annotations":{` + full + `}},"spec":{}}`, `{"metadata":{"annotations":{` + full + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"no space, a forged record":  {`{"metadata":{"annotations":{` + full + `,"gate.nodegate.dev/a":"x"}},"spec":{}}`, `{"metadata":{"annotations":{` + full + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"too many annotations":       {`{"metadata":{"annotations":{` + numbered(maxAnnotationsKept) + `"gate.nodegate.dev/a":"x"}}}`, `{"metadata":{"annotations":{` + a + `}},"spec":{"taints":[{"key":"example.com/a","effect":"NoSchedule"}]}}`},
		"the same, opted out":        {`{"metadata":{"labels":{"node-restriction.kubernetes.io/nodegate-opt-out":"true"},"annotations":{` + numbered(maxAnnotationsKept) + `"b":"c"}}}`, `{"metadata":{"labels":{"node-restriction.kubernetes.io/nodegate-opt-out":"true"},"annotations":{}}}`},
		"too many taints":            {`{"metadata":{"annotations":{"gate.nodegate.dev/a":"x"}},"spec":{"taints":[` + many + `]}}`, `{"metadata":{"annotations":{}},"spec":{"taints":[` + many + `]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := apply(t, test.object, answered(t, ask(t, h, review(test.object))))
			var gotAny, wantAny any
			if err := json.Unmarshal([]byte(got), &gotAny); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(test.want), &wantAny); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wantAny, gotAny); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := answered(t, ask(t, h, review(got))); len(again.Patch) > 0 {
				t.Errorf("a second request is patched again: %s", again.Patch)
			}
		})
	}
}

// numbered returns fields of a JSON object, each with a comma.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%q:\"\",", fmt.Sprintf("%x", i))
	}
	return b.String()
}

// Records of gates that do not exist, or do not close at creation, are removed, even if no
// gate selects the Node. Removing thousands takes one operation.
func TestUnlistedRecords(t *testing.T) {
	const one, other = `"gate.nodegate.dev/z":"x"`, `"gate.nodegate.dev":"x","override.nodegate.dev/z":"x","b":"c\u003c"`
	thousands := strings.ReplaceAll(numbered(4000), `"":`, `"x":`)
	thousands = strings.ReplaceAll(strings.TrimSuffix(thousands, ","), `,"`, `,"gate.nodegate.dev/`)
	for name, test := range map[string]struct {
		gates         []gate.Gate
		present, want string
	}{
		"no gate":                {nil, one, ``},
		"no gate, others":        {nil, one + `,` + other, other},
		"no selecting gate":      {twoGates[1:], one + `,"gate.nodegate.dev/gpu":"x",` + other, other},
		"no gate, thousands":     {nil, thousands + `,` + other, other + `,"0":""`},
		"thousands and a record": {twoGates[:1], thousands + `,` + other, other + `,"0":"","gate.nodegate.dev/a":` + strconv.Quote(recordA)},
	} {
		t.Run(name, func(t *testing.T) {
			h := &Handler{Gates: known(test.gates...), Log: testr.New(t)}
			object := `{"metadata":{"annotations":{` + test.present + `}},"spec":{}}`
			response := answered(t, ask(t, h, review(object)))
			var got corev1.Node
			if err := json.Unmarshal([]byte(apply(t, object, response)), &got); err != nil {
				t.Fatal(err)
			}
			var want map[string]string
			if err := json.Unmarshal([]byte(`{`+test.want+`}`), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Annotations); diff != "" {
				t.Errorf("(-want +got):\n%.2000s", diff)
			}
			if len(response.Patch) > 1000 {
				t.Errorf("the patch has %d bytes", len(response.Patch))
			}
		})
	}
}

// Requests that do not create a Node are allowed without a patch.
func TestOthersAreLeftAlone(t *testing.T) {
	h := &Handler{Gates: known(twoGates...), Log: testr.New(t)}
	node := review(`{"metadata":{}}`)
	for name, body := range map[string]string{
		"update":       strings.Replace(node, "CREATE", "UPDATE", 1),
		"delete":       strings.Replace(node, "CREATE", "DELETE", 1),
		"pods":         strings.Replace(node, `"nodes"`, `"pods"`, 1),
		"other group":  strings.Replace(node, `"group":""`, `"group":"metrics.k8s.io"`, 1),
		"version":      strings.Replace(node, `"version":"v1"`, `"version":"v2"`, 1),
		"status":       strings.Replace(node, `"operation"`, `"subResource":"status","operation"`, 1),
		"no object":    strings.Replace(node, `,"object":{"metadata":{}}`, "", 1),
		"null":         review("null"),
		"a list":       review("[]"),
		"no metadata":  review(`{"kind":"Node"}`),
		"other fields": review(`{"metadata":{"annotations":[1]}}`),
	} {
		t.Run(name, func(t *testing.T) {
			if r := answered(t, ask(t, h, body)); len(r.Patch) > 0 {
				t.Errorf("the response has a patch: %s", r.Patch)
			}
		})
	}
}

// Invalid requests get an HTTP error, which failurePolicy Ignore ignores, and are never
// answered with a rejection.
func TestNoQuestion(t *testing.T) {
	h := &Handler{Gates: known(twoGates...), Log: testr.New(t)}
	for name, test := range map[string]struct {
		body string
		code int
	}{
		"nothing":         {"", http.StatusBadRequest},
		"not JSON":        {"<html>", http.StatusBadRequest},
		"another kind":    {`{"kind":"Node","apiVersion":"v1"}`, http.StatusBadRequest},
		"another version": {strings.Replace(review("{}"), "k8s.io/v1", "k8s.io/v1beta1", 1), http.StatusBadRequest},
		"no request":      {`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, http.StatusBadRequest},
		"a list":          {"[]", http.StatusBadRequest},
		"two values":      {review("{}") + "{}", http.StatusBadRequest},
		"unfinished":      {strings.TrimSuffix(review("{}"), "}"), http.StatusBadRequest},
		"no value":        {`{"kind"}`, http.StatusBadRequest},
		"half a name":     {`{"kind\`, http.StatusBadRequest},
		"an invalid name": {`{"kin\x":1}`, http.StatusBadRequest},
		"a wrong type":    {strings.Replace(review("{}"), `"n"`, "1", 1), http.StatusBadRequest},
		"a null request":  {`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}`, http.StatusBadRequest},
		"no UID":          {strings.Replace(review("{}"), `"uid":"u",`, "", 1), http.StatusBadRequest},
		"too large":       {review(`{"metadata":{"annotations":{"x":"` + strings.Repeat("x", maxRequest) + `"}}}`), http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			if answer := ask(t, h, test.body); answer.Code != test.code || strings.Contains(answer.Body.String(), "allowed") {
				t.Errorf("status %d, want %d: %s", answer.Code, test.code, answer.Body)
			}
		})
	}
	for method, contentType := range map[string]string{http.MethodGet: "application/json", http.MethodPost: "text/plain"} {
		request := httptest.NewRequestWithContext(t.Context(), method, "/birth", strings.NewReader(review(`{"metadata":{}}`)))
		request.Header.Set("Content-Type", contentType)
		answer := httptest.NewRecorder()
		if h.ServeHTTP(answer, request); answer.Code < 400 {
			t.Errorf("%s of %s: status %d", method, contentType, answer.Code)
		}
	}
	h.Gates = func() ([]gate.Gate, bool) { return nil, false }
	if answer := ask(t, h, review(`{"metadata":{}}`)); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("while the gates are unknown, the status is %d", answer.Code)
	}
}

// FuzzNode checks for any object that the request is allowed or gets an HTTP error, that
// the patch applies, and that a second request changes nothing.
func FuzzNode(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{}}`, `{"metadata":{"annotations":{"gate.nodegate.dev/a":"x","gate.nodegate.dev/~/":"y"}},"spec":{"taints":[{"key":"example.com/a","value":"x"}]}}`,
		`{"metAdAtA":{"a":"b"}}`, `{"metadata":null}`, `[]`, `{"metadata":{"labels":{"pool":"gpu"}},"spec":{"taints":[null]},"status":{"nodeInfo":{"bootID":"b"}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, object string) {
		if !json.Valid([]byte(object)) {
			return // the text would end the request's object and continue with other fields
		}
		h := &Handler{Gates: known(twoGates...)}
		answer := ask(t, h, review(object))
		if answer.Code >= 400 {
			return
		}
		response := answered(t, answer)
		if len(response.Patch) == 0 {
			return
		}
		once := apply(t, object, response)
		if again := answered(t, ask(t, h, review(once))); len(again.Patch) > 0 {
			t.Errorf("a second request is patched again: %s", again.Patch)
		}
	})
}

// FuzzReview checks for any request body that the answer is an HTTP error, or allows the
// request with the same UID. Its size is limited by the request and two gates.
func FuzzReview(f *testing.F) {
	for _, seed := range []string{
		review(`{"metadata":{}}`), review(`null`), `{}`, `null`, `[]`, ``, `{"request":null}`, `{"request":{"uid":"u"}}`,
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u","object":{}}}`,
		review(`{}`) + review(`{}`), `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","resource":{"resource":"pods"},"object":{}}}`,
	} {
		f.Add(seed)
	}
	h := &Handler{Gates: known(twoGates...)}
	f.Fuzz(func(t *testing.T, body string) {
		answer := ask(t, h, body)
		if answer.Code >= 400 {
			return
		}
		var asked, got admissionv1.AdmissionReview
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatalf("the answer cannot be read: %v: %s", err, answer.Body)
		}
		if r := got.Response; got.Kind != "AdmissionReview" || got.APIVersion != "admission.k8s.io/v1" || r == nil || !r.Allowed || r.Result != nil {
			t.Fatalf("the answer does not allow the request: %s", answer.Body)
		}
		if err := json.Unmarshal([]byte(body), &asked); err == nil && asked.Request != nil && got.Response.UID != asked.Request.UID {
			t.Errorf("the UID of the answer is %q, of the request %q", got.Response.UID, asked.Request.UID)
		}
		if len(got.Response.Patch) > 8*len(body)+4096 {
			t.Errorf("the patch has %d bytes, the request %d", len(got.Response.Patch), len(body))
		}
	})
}
