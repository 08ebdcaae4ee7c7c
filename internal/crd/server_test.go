// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/crd"
	"github.com/nodegate/nodegate/internal/crd/crdtest"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
	"github.com/nodegate/nodegate/testcluster/components"
)

func TestMain(m *testing.M) {
	clustertest.Main(m, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
}

// connect returns a NodeGate client for a real API server with the definition.
func connect(t *testing.T) *rest.RESTClient {
	t.Helper()
	config := rest.CopyConfig(clustertest.Shared(t).Admin())
	crdtest.Install(t, config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatalf("creating a client: %v", err)
	}
	return client
}

// create sends the document unchanged.
func create(t *testing.T, client *rest.RESTClient, document []byte, dryRun ...string) ([]byte, error) {
	t.Helper()
	request := client.Post().Resource("nodegates").Param("fieldValidation", "Strict").
		SetHeader("Content-Type", "application/yaml").SetHeader("Accept", "application/json").Body(document)
	for _, value := range dryRun {
		request = request.Param("dryRun", value)
	}
	return request.Do(t.Context()).Raw()
}

// result converts a rejection to an error.
func result(body []byte, err error) error {
	status := &apierrors.StatusError{}
	if err != nil && json.Unmarshal(body, &status.ErrStatus) == nil {
		return status
	}
	return err
}

// server returns an admitter that uses the API server.
func server(t *testing.T) admitter {
	client := connect(t)
	return func(t *testing.T, document []byte) error {
		return result(create(t, client, document, metav1.DryRunAll))
	}
}

func TestRulesOnServer(t *testing.T) {
	testRules(t, server(t))
}

// TestServerAndProcessAgree checks that a gate from a file is rejected with the same
// messages as a gate that is sent to the API server.
func TestServerAndProcessAgree(t *testing.T) {
	ask := server(t)
	for _, r := range rules {
		for _, fields := range []string{r.keep, r.breaks} {
			document := document(t, fields)
			got, want := sorted(causes(t, inProcess(t, document))), sorted(causes(t, ask(t, document)))
			if !slices.EqualFunc(got, want, agree) {
				t.Errorf("%s\nthe API server returns\n%v\nthis package returns\n%v", fields, want, got)
			}
		}
	}
}

// valueAsType is the beginning of a message from an API server before 1.35: the type of
// the rejected value instead of the value.
var valueAsType = regexp.MustCompile(`^Invalid value: "[a-z]*": `)

// agree reports whether two causes are the same, except for valueAsType.
func agree(ours, theirs metav1.StatusCause) bool {
	if prefix := valueAsType.FindString(theirs.Message); prefix != "" && components.Before(testcluster.DefaultVersion(), "1.35") {
		rule := strings.TrimPrefix(theirs.Message, prefix)
		return ours.Type == theirs.Type && ours.Field == theirs.Field && strings.HasSuffix(ours.Message, ": "+rule)
	}
	return ours == theirs
}

func TestServerAndProcessAgreeOnUnknownFields(t *testing.T) {
	document := []byte(base + "  colour: red\n")
	got, want := inProcess(t, document), server(t)(t, document)
	if !apierrors.IsBadRequest(want) || !strings.Contains(want.Error(), got.Error()) {
		t.Errorf("the API server returns %v, this package returns %v", want, got)
	}
}

func sorted(list []metav1.StatusCause) []metav1.StatusCause {
	return slices.SortedFunc(slices.Values(list), func(a, b metav1.StatusCause) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
}

// decode parses a gate from the API server's response.
func decode(t *testing.T, body []byte, err error) *v1alpha1.NodeGate {
	t.Helper()
	if err != nil {
		t.Fatal(result(body, err))
	}
	gate := &v1alpha1.NodeGate{}
	if err := json.Unmarshal(body, gate); err != nil {
		t.Fatalf("reading a gate: %v", err)
	}
	return gate
}

func TestServerSetsDefaults(t *testing.T) {
	body, err := create(t, connect(t), document(t, pods("namespace: a")), metav1.DryRunAll)
	checkDefaults(t, decode(t, body, err))
}

func TestServerIgnoresTheNamespace(t *testing.T) {
	body, err := create(t, connect(t), []byte(namespaced), metav1.DryRunAll)
	if gate := decode(t, body, err); gate.Namespace != "" {
		t.Errorf("the namespace is %q", gate.Namespace)
	}
}

func TestServerReadsNullLabelValuesAsEmpty(t *testing.T) {
	body, err := create(t, connect(t), document(t, fmt.Sprintf(withLabels, "null")), metav1.DryRunAll)
	checkNullLabelValues(t, decode(t, body, err))
}

func TestShortNameAndCategory(t *testing.T) {
	connect(t)
	client := discovery.NewDiscoveryClientForConfigOrDie(clustertest.Shared(t).Admin())
	list, err := client.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if err != nil {
		t.Fatalf("discovering: %v", err)
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "nodegates" })
	if i < 0 {
		t.Fatalf("no nodegates in %v", list.APIResources)
	}
	found := list.APIResources[i]
	if found.Namespaced || !slices.Equal(found.ShortNames, []string{"ng"}) || !slices.Equal(found.Categories, []string{"nodegate"}) {
		t.Errorf("got %+v, want a cluster-scoped resource with the short name ng", found)
	}
}

// TestFieldSelectors lists gates by the fields that the definition makes selectable.
func TestFieldSelectors(t *testing.T) {
	client := connect(t)
	for name, fields := range map[string]string{"enforced": "", "paused": "  mode: Paused\n"} {
		if _, err := create(t, client, append(document(t, named(name)), fields...)); err != nil {
			t.Fatal(err)
		}
		defer remove(t, client, name)
	}
	for selector, want := range map[string][]string{
		"spec.mode=Paused":                                      {"paused"},
		"spec.mode=Enforce":                                     {"enforced"},
		"spec.mode!=Paused":                                     {"enforced"},
		"spec.taint.key=example.com/not-ready":                  {"enforced", "paused"},
		"spec.taint.key=example.com/not-ready,spec.mode=Paused": {"paused"},
		"spec.taint.key=example.com/other":                      nil,
	} {
		list := &v1alpha1.NodeGateList{}
		body, err := client.Get().Resource("nodegates").Param("fieldSelector", selector).Do(t.Context()).Raw()
		if err := errors.Join(result(body, err), json.Unmarshal(body, list)); err != nil {
			t.Errorf("%s: %v", selector, err)
			continue
		}
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s selects %v, want %v", selector, got, want)
		}
	}
}

// TestUnprocessedGateIsInProgress checks that Flux and Helm's --wait (kstatus) keep
// waiting for a gate that no controller has processed.
func TestUnprocessedGateIsInProgress(t *testing.T) {
	client := connect(t)
	if _, err := create(t, client, document(t, named("unseen"))); err != nil {
		t.Fatal(err)
	}
	defer remove(t, client, "unseen")
	body, err := client.Get().Resource("nodegates").Name("unseen").Do(t.Context()).Raw()
	stored := &unstructured.Unstructured{}
	if err := errors.Join(err, stored.UnmarshalJSON(body)); err != nil {
		t.Fatalf("getting the gate: %v", err)
	}
	result, err := kstatus.Compute(stored)
	if err != nil || result.Status != kstatus.InProgressStatus {
		t.Errorf("kstatus returns %+v, %v; the status of the gate is %v", result, err, stored.Object["status"])
	}
}

// TestStatusAndColumns writes a status like the controller does, and checks the table
// that kubectl shows.
func TestStatusAndColumns(t *testing.T) {
	client := connect(t)
	body, err := create(t, client, document(t, named("columns")))
	gate := decode(t, body, err)
	defer remove(t, client, "columns")

	gate.Status = v1alpha1.NodeGateStatus{
		ObservedGeneration: gate.Generation,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonBirthNotProved,
			LastTransitionTime: metav1.Now(),
		}},
		Nodes:   v1alpha1.NodeCounts{Selected: 5, Open: 3, Closed: 2},
		Waiting: []v1alpha1.WaitingNode{{Node: "node-1", Signal: "agent"}},
	}
	gate.Spec.Taint.Key = "ignored"
	sent, err := json.Marshal(gate)
	if err != nil {
		t.Fatal(err)
	}
	body, err = client.Put().Resource("nodegates").Name("columns").SubResource("status").
		SetHeader("Content-Type", "application/json").Body(sent).Do(t.Context()).Raw()
	stored := decode(t, body, err)
	if stored.Status.Nodes != gate.Status.Nodes || stored.Spec.Taint.Key != "example.com/not-ready" {
		t.Errorf("after a write of the status: %+v", stored)
	}

	table := &metav1.Table{}
	body, err = client.Get().Resource("nodegates").Name("columns").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	if err := errors.Join(err, json.Unmarshal(body, table)); err != nil {
		t.Fatalf("getting a table: %v", err)
	}
	row := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		row[column.Name] = table.Rows[0].Cells[i]
	}
	if _, ok := row["Age"]; !ok {
		t.Error("there is no column Age")
	}
	for column, want := range map[string]any{
		"Name": "columns", "Taint": "example.com/not-ready", "Effect": "NoSchedule", "Mode": "Enforce",
		"Ready": "False", "Reason": "BirthNotProved", "Selected": 5.0, "Open": 3.0, "Closed": 2.0,
	} {
		if row[column] != want {
			t.Errorf("column %s: got %v, want %v", column, row[column], want)
		}
	}
}

// TestGoClientsMayCreateGates creates a gate as Go marshals it, including a zero
// status.
func TestGoClientsMayCreateGates(t *testing.T) {
	gate, err := crd.Decode(document(t, pods("namespace: a")))
	if err != nil {
		t.Fatal(err)
	}
	data, err := yaml.Marshal(gate)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "status:") || strings.Contains(string(data), "null") {
		t.Errorf("a gate without a status is written as\n%s", data)
	}
	if err := server(t)(t, data); err != nil {
		t.Error(err)
	}
}

func remove(t *testing.T, client *rest.RESTClient, name string) {
	t.Helper()
	if err := client.Delete().Resource("nodegates").Name(name).Do(t.Context()).Error(); err != nil {
		t.Errorf("deleting %s: %v", name, err)
	}
}
