// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/release"
	"github.com/nodegate/nodegate/testcluster"
)

// Options of nodegate's writes to Nodes.
var (
	ownPatch  = metav1.PatchOptions{FieldManager: v1alpha1.FieldManager}
	ownDryRun = metav1.PatchOptions{FieldManager: v1alpha1.FieldManager, DryRun: dryRun}
)

// owned creates a node whose label team=x was applied by the manager "owner", and
// whose other labels, taints and annotations belong to other managers.
func owned(t testing.TB, in *installation, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{"pool": "a", "zone": "b"},
			Annotations: map[string]string{"other": "x"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{foreign, taintA}},
	}
	if _, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{FieldManager: "cloud"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNode(t, in, name) })
	return applyOwned(t, in, name)
}

// applyOwned applies the label as the manager "owner".
func applyOwned(t testing.TB, in *installation, name string) *corev1.Node {
	t.Helper()
	apply := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"labels":{"team":"x"}}}`, name)
	node, err := in.admin.CoreV1().Nodes().Patch(context.Background(), name, types.ApplyPatchType, []byte(apply), metav1.PatchOptions{FieldManager: "owner"})
	if err != nil {
		t.Fatalf("applying: %v", err)
	}
	return node
}

// TestForgedOwnership tests an attack with nodegate's token: the attacker makes a manager
// the owner of labels and taints that are not in its configuration, so that its next
// apply, unchanged, would delete them.
func TestForgedOwnership(t *testing.T) {
	in := install(t)
	undisturbed(t, in)
	before := owned(t, in, "forged-ownership")
	forged := changed(before.ManagedFields, func(e *metav1.ManagedFieldsEntry) {
		setFields(e, `{"f:metadata":{"f:name":{}}}`)
		if e.Manager == "owner" {
			setFields(e, `{"f:metadata":{"f:labels":{"f:team":{},"f:pool":{},"f:zone":{}}},"f:spec":{"f:taints":{}}}`)
		}
	})
	_, err := in.nodegate.CoreV1().Nodes().Patch(t.Context(), before.Name, types.JSONPatchType, jsonPatch(replaceFields(t, forged)), ownPatch)
	checkDenied(t, err, onlyOwnFields)
	after := applyOwned(t, in, before.Name)
	if diff := cmp.Diff(before.Labels, after.Labels); diff != "" {
		t.Errorf("labels after the owner's next apply (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Spec.Taints, after.Spec.Taints); diff != "" {
		t.Errorf("taints after the owner's next apply (-want +got):\n%s", diff)
	}
}

// changed returns a copy of entries, each changed by f.
func changed(entries []metav1.ManagedFieldsEntry, f func(*metav1.ManagedFieldsEntry)) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, e := range entries {
		copied := e.DeepCopy()
		f(copied)
		out = append(out, *copied)
	}
	return out
}

func setFields(e *metav1.ManagedFieldsEntry, fields string) { e.FieldsV1 = metav1.NewFieldsV1(fields) }

// replaceFields is the operation of a JSON Patch that replaces managedFields.
func replaceFields(t testing.TB, entries []metav1.ManagedFieldsEntry) string {
	t.Helper()
	value, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	return op("add", "/metadata/managedFields", string(value))
}

// TestForgeries tests that nothing in managedFields can be forged, alone or in the same
// patch as an opening. Changes that the API server itself ignores, such as a claim to
// fields that the patch changes, are no forgeries.
func TestForgeries(t *testing.T) {
	in := install(t)
	undisturbed(t, in)
	node := owned(t, in, "forgeries")
	nodes, ours := in.admin.CoreV1().Nodes(), in.nodegate.CoreV1().Nodes()
	// The manager nodegate owns the taints and a record, and "owner" lost nothing.
	honest := []string{op("add", "/spec/taints/-", `{"key":"test.nodegate.dev/b","effect":"NoSchedule"}`), op("add", "/metadata/annotations/gate.nodegate.dev~1one", `"{}"`)}
	if _, err := ours.Patch(t.Context(), node.Name, types.JSONPatchType, jsonPatch(honest...), ownPatch); err != nil {
		t.Fatal(err)
	}
	status := []byte(`{"status":{"conditions":[{"type":"Odd","status":"True"}]}}`)
	node, err := nodes.Patch(t.Context(), node.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	if err != nil {
		t.Fatal(err)
	}
	only := func(manager string, f func(*metav1.ManagedFieldsEntry)) []metav1.ManagedFieldsEntry {
		return changed(node.ManagedFields, func(e *metav1.ManagedFieldsEntry) {
			if e.Manager == manager {
				f(e)
			}
		})
	}
	without := func(manager string) []metav1.ManagedFieldsEntry {
		return slices.DeleteFunc(slices.Clone(node.ManagedFields), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager })
	}
	with := func(manager, fields string) []metav1.ManagedFieldsEntry {
		return only(manager, func(e *metav1.ManagedFieldsEntry) { setFields(e, fields) })
	}
	added := func(manager string, operation metav1.ManagedFieldsOperationType) []metav1.ManagedFieldsEntry {
		return append(slices.Clone(node.ManagedFields), metav1.ManagedFieldsEntry{
			Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", Time: &metav1.Time{Time: time.Unix(1, 0)},
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:zone":{}}}}`),
		})
	}
	later := &metav1.Time{Time: time.Now().Add(time.Hour)}
	const team = `"f:labels":{"f:team":{}}`
	tests := map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"all is reset":                            {[]metav1.ManagedFieldsEntry{{}}, onlyOwnFields},
		"an apply gains labels":                   {with("owner", `{"f:metadata":{"f:labels":{"f:team":{},"f:pool":{},"f:zone":{}}}}`), onlyOwnFields},
		"an apply gains all labels":               {with("owner", `{"f:metadata":{"f:labels":{".":{},"f:team":{}}}}`), onlyOwnFields},
		"an apply gains the taints":               {with("owner", `{"f:metadata":{`+team+`},"f:spec":{"f:taints":{}}}`), onlyOwnFields},
		"an apply gains the spec":                 {with("owner", `{"f:metadata":{`+team+`},"f:spec":{}}`), onlyOwnFields},
		"an apply gains the spec as a map":        {with("owner", `{"f:metadata":{`+team+`},"f:spec":{".":{}}}`), onlyOwnFields},
		"an apply gains a record":                 {with("owner", `{"f:metadata":{`+team+`,"f:annotations":{"f:gate.nodegate.dev/one":{}}}}`), onlyOwnFields},
		"an apply gains all annotations":          {with("owner", `{"f:metadata":{`+team+`,"f:annotations":{}}}`), onlyOwnFields},
		"an apply gains all annotations as a map": {with("owner", `{"f:metadata":{`+team+`,"f:annotations":{".":{}}}}`), onlyOwnFields},
		"an apply gains the status":               {with("owner", `{"f:metadata":{`+team+`},"f:status":{"f:phase":{}}}`), onlyOwnFields},
		"an apply loses its label":                {with("owner", `{"f:metadata":{"f:labels":{"f:none":{}}}}`), onlyOwnFields},
		"an apply is gone":                        {without("owner"), onlyOwnFields},
		"an update gains a label":                 {with("cloud", `{"f:metadata":{"f:labels":{".":{},"f:pool":{},"f:zone":{},"f:team":{}}}}`), onlyOwnFields},
		"an update loses a label":                 {with("cloud", `{"f:metadata":{"f:labels":{".":{},"f:pool":{}}}}`), onlyOwnFields},
		"an update is gone":                       {without("cloud"), onlyOwnFields},
		"a kubelet's status is gone":              {without("kubelet"), onlyOwnFields},
		"an apply appears":                        {added("another", "Apply"), onlyOwnFields},
		"an update appears":                       {added("another", "Update"), onlyOwnFields},
		"ancient changes appear":                  {added("ancient-changes", "Update"), onlyOwnFields},
		"nodegate applies":                        {added("nodegate", "Apply"), onlyOwnFields},
		"nodegate updates a status":               {append(added("nodegate", "Update")[:len(node.ManagedFields):len(node.ManagedFields)], metav1.ManagedFieldsEntry{Manager: "nodegate", Operation: "Update", Subresource: "status", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`)}), onlyOwnFields},
		"a manager has another name":              {only("owner", func(e *metav1.ManagedFieldsEntry) { e.Manager = "other" }), onlyOwnFields},
		"an apply takes nodegate's name":          {only("owner", func(e *metav1.ManagedFieldsEntry) { e.Manager = "nodegate" }), onlyOwnFields},
		"an apply becomes an update":              {only("owner", func(e *metav1.ManagedFieldsEntry) { e.Operation = "Update" }), onlyOwnFields},
		"an update becomes an apply":              {only("cloud", func(e *metav1.ManagedFieldsEntry) { e.Operation = "Apply" }), onlyOwnFields},
		"an apply has another time":               {only("owner", func(e *metav1.ManagedFieldsEntry) { e.Time = later }), onlyOwnFields},
		"an update has another time":              {only("cloud", func(e *metav1.ManagedFieldsEntry) { e.Time = later }), onlyOwnFields},
		"an update has no time":                   {only("cloud", func(e *metav1.ManagedFieldsEntry) { e.Time = nil }), onlyOwnFields},
		"an update is of the status":              {only("cloud", func(e *metav1.ManagedFieldsEntry) { e.Subresource = "status" }), onlyOwnFields},
		"a status is of the node":                 {only("kubelet", func(e *metav1.ManagedFieldsEntry) { e.Subresource = "" }), onlyOwnFields},
		"nodegate's becomes an apply":             {only("nodegate", func(e *metav1.ManagedFieldsEntry) { e.Operation = "Apply" }), onlyOwnFields},
		"nodegate owns a label":                   {with("nodegate", `{"f:metadata":{"f:labels":{"f:zone":{}}},"f:spec":{"f:taints":{}}}`), ownsNothingElse},
		"nodegate owns another annotation":        {with("nodegate", `{"f:metadata":{"f:annotations":{"f:other":{}}}}`), ownsNothingElse},
		"nodegate owns the provider ID":           {with("nodegate", `{"f:spec":{"f:taints":{},"f:providerID":{}}}`), ownsNothingElse},
		"nodegate owns a finalizer":               {with("nodegate", `{"f:metadata":{"f:finalizers":{"v:\"x\"":{}}}}`), ownsNothingElse},
	}
	patched := func(t *testing.T, patch []byte) []metav1.ManagedFieldsEntry {
		t.Helper()
		got, err := nodes.Patch(t.Context(), node.Name, types.JSONPatchType, patch, ownDryRun) // as nodegate, unguarded
		if err != nil {
			t.Fatal(err)
		}
		return changed(got.ManagedFields, func(e *metav1.ManagedFieldsEntry) {
			if e.Manager == v1alpha1.FieldManager {
				e.Time = nil
			}
		})
	}
	opens := []string{op("remove", "/spec/taints/1", "null"), op("replace", "/metadata/annotations/gate.nodegate.dev~1one", `"{ }"`)}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			effects := 0
			for _, along := range [][]string{nil, opens} {
				patch := jsonPatch(append(slices.Clone(along), replaceFields(t, test.entries))...)
				want := ""
				if !cmp.Equal(patched(t, patch), patched(t, jsonPatch(along...))) {
					want = test.want
					effects++
				}
				_, err := ours.Patch(t.Context(), node.Name, types.JSONPatchType, patch, ownDryRun)
				checkDenied(t, err, want)
			}
			if effects == 0 {
				t.Error("the API server ignores this change in every patch")
			}
		})
	}
}

// TestOnlyAsNodegate tests that a stolen token cannot be used under another manager's
// name, or for server-side apply.
func TestOnlyAsNodegate(t *testing.T) {
	in := install(t)
	undisturbed(t, in)
	node := owned(t, in, "only-as-nodegate")
	ours := in.nodegate.CoreV1().Nodes()
	const record = `{"metadata":{"annotations":{"gate.nodegate.dev/one":"{}"}}}`
	apply := func(rest string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,%s}}`, node.Name, rest)
	}
	annotations, labels := apply(`"labels":{"team":"x"},"annotations":{"gate.nodegate.dev/one":"{}"}`), apply(`"labels":{"team":"x"}`)
	for name, test := range map[string]struct {
		kind    types.PatchType
		patch   []byte
		manager string
		want    string
	}{
		"by merge patch":               {types.MergePatchType, []byte(record), "nodegate", ""},
		"by strategic merge patch":     {types.StrategicMergePatchType, []byte(record), "nodegate", ""},
		"by apply":                     {types.ApplyPatchType, annotations, "nodegate", onlyOwnFields},
		"by apply of an owned label":   {types.ApplyPatchType, labels, "nodegate", onlyOwnFields},
		"by apply as the owner":        {types.ApplyPatchType, annotations, "owner", onlyOwnManager},
		"as the owner":                 {types.MergePatchType, []byte(record), "owner", onlyOwnManager},
		"as kubectl":                   {types.MergePatchType, []byte(record), "kubectl-client-side-apply", onlyOwnManager},
		"as the user agent's manager":  {types.MergePatchType, []byte(record), "", onlyOwnManager},
		"as nodegate release":          {types.MergePatchType, []byte(record), release.FieldManager, ""},
		"by apply as nodegate release": {types.ApplyPatchType, annotations, release.FieldManager, onlyOwnFields},
		"as a manager named nodegate-": {types.MergePatchType, []byte(record), "nodegate-", onlyOwnManager},
	} {
		t.Run(name, func(t *testing.T) {
			options := metav1.PatchOptions{FieldManager: test.manager, DryRun: dryRun}
			if test.kind == types.ApplyPatchType {
				options.Force = new(true)
			}
			_, err := ours.Patch(t.Context(), node.Name, test.kind, test.patch, options)
			checkDenied(t, err, test.want)
		})
	}
}

// labelled returns n labels or annotations.
func labelled(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("example.com/k%d", i)] = "v"
	}
	return out
}

// ownedKeys returns the keys of labelled as fields of managedFields.
func ownedKeys(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"f:example.com/k%d":{}`, i))
	}
	return strings.Join(all, ",")
}

// entry returns an entry of managedFields; seconds is its time, 0 for none.
func entry(manager string, operation metav1.ManagedFieldsOperationType, seconds int64, fields string) metav1.ManagedFieldsEntry {
	e := metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	if seconds > 0 {
		e.Time = &metav1.Time{Time: time.Unix(seconds, 0)}
	}
	return e
}

// updaters returns entries of n managers that update, each of which owns a label.
func updaters(n int, seconds func(i int) int64) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for i := range n {
		out = append(out, entry(fmt.Sprintf("updater-%d", i), "Update", seconds(i), fmt.Sprintf(`{"f:metadata":{"f:labels":{".":{},"f:example.com/k%d":{}}}}`, i)))
	}
	return out
}

// undisturbed stops the controller manager, which writes Nodes, until the test ends.
func undisturbed(t testing.TB, in *installation) {
	t.Helper()
	in.StopComponent(testcluster.ControllerManager)
	t.Cleanup(func() {
		if err := in.StartComponent(context.Background(), testcluster.ControllerManager); err != nil {
			t.Error(err)
		}
	})
}

// create creates a Node without taints, with these entries as managedFields.
func create(t testing.TB, in *installation, node *corev1.Node, entries []metav1.ManagedFieldsEntry) *corev1.Node {
	t.Helper()
	nodes := in.admin.CoreV1().Nodes()
	node, err := nodes.Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNode(t, in, node.Name) })
	patch := jsonPatch(op("remove", "/spec/taints", "null"), replaceFields(t, []metav1.ManagedFieldsEntry{{}}))
	if _, err := nodes.Patch(t.Context(), node.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	return own(t, in, node.Name, entries)
}

// own sets a Node's managedFields.
func own(t testing.TB, in *installation, name string, entries []metav1.ManagedFieldsEntry) *corev1.Node {
	t.Helper()
	if len(entries) == 0 {
		entries = []metav1.ManagedFieldsEntry{{}}
	}
	node, err := in.admin.CoreV1().Nodes().Patch(t.Context(), name, types.JSONPatchType, jsonPatch(replaceFields(t, entries)), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// TestHonestPatches tests that nodegate can close and open gates, and write and remove
// records, by any kind of patch, regardless of the ownership of fields.
func TestHonestPatches(t *testing.T) {
	in := install(t)
	in.close(t)
	undisturbed(t, in)
	const taints, record = `"f:spec":{"f:taints":{}}`, `"f:annotations":{".":{},"f:gate.nodegate.dev/one":{}}`
	past := func(i int) int64 { return int64(1_000_000 + i) }
	future := func(int) int64 { return time.Now().Add(time.Hour).Unix() }
	never := func(int) int64 { return 0 }
	ancient := entry("ancient-changes", "Update", 1_000_001, `{`+taints+`,"f:metadata":{`+record+`,"f:labels":{".":{},"f:example.com/k20":{}}}}`)
	tests := map[string]struct {
		annotations map[string]string
		entries     []metav1.ManagedFieldsEntry
	}{
		"no manager owns a field":           {nil, nil},
		"a kubelet owns the taints":         {labelled(3), []metav1.ManagedFieldsEntry{entry("kubelet", "Update", 7, `{`+taints+`,"f:metadata":{"f:annotations":{".":{},"f:example.com/k1":{}}}}`)}},
		"an apply owns the taints only":     {labelled(3), []metav1.ManagedFieldsEntry{entry("owner", "Apply", 7, `{`+taints+`}`)}},
		"applies own the taints and more":   {labelled(3), []metav1.ManagedFieldsEntry{entry("owner", "Apply", 7, `{"f:spec":{"f:taints":{},"f:podCIDR":{}},"f:metadata":{"f:labels":{"f:example.com/k2":{}}}}`), entry("second", "Apply", 7, `{`+taints+`}`)}},
		"an apply owns a record only":       {labelled(3), []metav1.ManagedFieldsEntry{entry("owner", "Apply", 7, `{"f:metadata":{"f:annotations":{"f:gate.nodegate.dev/one":{}}}}`)}},
		"an apply owns records and all":     {nil, []metav1.ManagedFieldsEntry{entry("owner", "Apply", 7, `{"f:metadata":{`+record+`}}`)}},
		"an apply owns all annotations":     {nil, []metav1.ManagedFieldsEntry{entry("owner", "Apply", 7, `{"f:metadata":{"f:annotations":{}},"f:spec":{}}`)}},
		"an update of the status owns some": {nil, []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` + record + `}}`)}}},
		"nodegate owned a label":            {nil, []metav1.ManagedFieldsEntry{entry("nodegate", "Update", 7, `{"f:metadata":{"f:labels":{"f:example.com/k1":{}},"f:annotations":{"f:old":{}}},"f:spec":{"f:podCIDR":{}}}`)}},
		"nodegate applied":                  {nil, []metav1.ManagedFieldsEntry{entry("nodegate", "Apply", 7, `{"f:metadata":{`+record+`}}`)}},
		"nine update":                       {nil, updaters(9, past)},
		"ten update":                        {nil, updaters(10, past)},
		"ten update at a time":              {nil, updaters(10, func(int) int64 { return 7 })},
		"ten update in the future":          {nil, updaters(10, future)},
		"ten update at no time":             {nil, updaters(10, never)},
		"ten update, and one applies":       {nil, append(updaters(10, past), entry("owner", "Apply", 7, `{`+taints+`}`))},
		"ten update, the oldest the taints": {nil, append(updaters(9, past), entry("a", "Update", 7, `{`+taints+`}`))},
		"ten update, ancient ones too":      {nil, append(updaters(9, past), ancient)},
		"ten update in the future, ancient": {nil, append(updaters(9, future), ancient)},
		"ten update at the ancient time":    {nil, append(updaters(9, func(int) int64 { return 1_000_001 }), ancient)},
		"many labels and annotations":       {labelled(200), append(updaters(10, past), entry("owner", "Apply", 7, `{"f:metadata":{"f:annotations":{}}}`))},
	}
	one, b := prefix+"one", `{"key":"test.nodegate.dev/b","effect":"NoSchedule"}`
	steps := []struct {
		kind  types.PatchType
		patch string
	}{
		{types.MergePatchType, `{"metadata":{"annotations":{"` + one + `":"{}"}}}`},
		{types.StrategicMergePatchType, `{"spec":{"taints":[` + b + `]}}`},
		{types.JSONPatchType, `[{"op":"remove","path":"/spec/taints/0"}]`},
		{types.JSONPatchType, `[{"op":"add","path":"/spec/taints","value":[` + b + `]},{"op":"add","path":"/metadata/annotations/gate.nodegate.dev~1two","value":"x"}]`},
		{types.MergePatchType, `{"metadata":{"annotations":{"` + one + `":"{ }","` + prefix + `two":null}}}`},
		{types.JSONPatchType, `[{"op":"remove","path":"/metadata/annotations/gate.nodegate.dev~1one"}]`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			name := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			create(t, in, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelled(200), Annotations: test.annotations}}, test.entries)
			for i, step := range steps {
				_, err := in.nodegate.CoreV1().Nodes().Patch(t.Context(), name, step.kind, []byte(step.patch), ownPatch)
				if err != nil {
					t.Errorf("patch %d: %v", i, err)
				}
			}
		})
	}
}

// TestHonestPatchesOfAnything tests that nodegate's patches are allowed with all entries
// of other managers that the API server accepts from a kubelet.
func TestHonestPatchesOfAnything(t *testing.T) {
	in := install(t)
	in.close(t)
	undisturbed(t, in)
	random := seeded(t)
	fields := []string{
		`"f:spec":{"f:taints":{}}`, `"f:spec":{}`, `"f:spec":{".":{},"f:taints":{},"f:podCIDR":{}}`, `"f:spec":{"f:taints":{"k:{\"key\":\"x\"}":{}}}`,
		`"f:spec":{"f:taints":{".":{},"i:0":{}}}`, `"f:spec":{".":{},"f:taints":{}}`, `"f:status":{"f:conditions":{".":{},"k:{\"type\":\"Ready\"}":{".":{},"f:type":{}}}}`,
		`"f:status":{}`, `"f:status":{"f:nodeInfo":{"f:swap":{"f:capacity":{}}}}`, `"f:unknown":{"f:a":{"f:b":{"f:c":{"f:d":{"f:e":{}}}}}}`,
	}
	metadata := []string{
		`"f:annotations":{}`, `"f:annotations":{".":{}}`, `"f:annotations":{"f:gate.nodegate.dev/one":{}}`, `"f:annotations":{".":{},"f:gate.nodegate.dev/two":{}}`,
		`"f:annotations":{".":{},"f:gate.nodegate.dev/one":{},"f:example.com/k1":{}}`, `"f:annotations":{"k:{\"a\":\"b\"}":{},"v:1":{},"f:":{}}`, `".":{}`,
		`"f:labels":{".":{},"f:example.com/k1":{}}`, `"f:labels":{"f:example.com/k2":{}}`, `"f:labels":{}`, `"f:finalizers":{"v:\"x\"":{}}`,
	}
	some := func(from []string) string {
		taken := map[string]string{}
		for range random.IntN(4) {
			one := pick(random, from)
			key, _, _ := strings.Cut(one, ":{")
			taken[key] = one
		}
		return strings.Join(slices.Sorted(maps.Values(taken)), ",")
	}
	operations := []string{
		op("add", "/spec/taints", `[{"key":"test.nodegate.dev/b","effect":"NoSchedule"}]`), op("add", "/spec/taints", `[{"key":"test.nodegate.dev/a","effect":"NoSchedule"}]`),
		op("add", "/spec/taints", `[]`), op("add", "/metadata/annotations/gate.nodegate.dev~1one", `"1"`), op("add", "/metadata/annotations/gate.nodegate.dev~1one", `"2"`),
		op("add", "/metadata/annotations/gate.nodegate.dev~1two", `"1"`), op("add", "/metadata/annotations/example.com~1opened-at", `"1"`),
	}
	node := create(t, in, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "anything", Labels: labelled(3)}}, nil)
	const rounds = 200
	merging := 0
	for range rounds {
		by := pick(random, []string{v1alpha1.FieldManager, v1alpha1.FieldManager, release.FieldManager})
		var entries []metav1.ManagedFieldsEntry
		for range random.IntN(24) {
			operation := []metav1.ManagedFieldsOperationType{"Update", "Update", "Update", "Apply"}[random.IntN(4)]
			both := some(fields)
			if m := some(metadata); m != "" {
				both = strings.Trim(both+`,"f:metadata":{`+m+"}", ",")
			}
			manager := pick(random, []string{"a", "a b", "b", "c", "d", "e", "f", "g", "ancient-changes", "kubelet", "nodegate", "nodegate-release"})
			e := entry(manager, operation, []int64{0, 1, 2, 3, 4, time.Now().Unix(), time.Now().Unix() + 1000}[random.IntN(7)], "{"+both+"}")
			e.Subresource = pick(random, []string{"", "", "status"})
			if isOwn(e) && manager != by {
				continue // in practice, each of nodegate's own managers owns only what it wrote
			}
			entries = append(entries, e)
		}
		annotations := [][]byte{[]byte(`{"metadata":{"annotations":null}}`), []byte(`{"metadata":{"annotations":{"other":"x"}}}`)}[random.IntN(2)]
		if _, err := in.admin.CoreV1().Nodes().Patch(t.Context(), node.Name, mergePatch, annotations, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		before := own(t, in, node.Name, entries)
		for range 3 {
			patch := []string{}
			if before.Annotations == nil {
				patch = append(patch, op("add", "/metadata/annotations", `{}`))
			}
			for range 1 + random.IntN(3) {
				patch = append(patch, pick(random, operations))
			}
			after, err := in.nodegate.CoreV1().Nodes().Patch(t.Context(), node.Name, types.JSONPatchType, jsonPatch(patch...), metav1.PatchOptions{FieldManager: by})
			if err != nil {
				t.Fatalf("patching %s: %v; managedFields were\n%s", patch, err, replaceFields(t, before.ManagedFields))
			}
			if !slices.ContainsFunc(before.ManagedFields, isOwn) && updating(before.ManagedFields) == 10 && updating(after.ManagedFields) <= 10 {
				merging++
			}
			before = after
		}
	}
	t.Logf("%d nodes; on %d of them, managers were merged", rounds, merging)
	if merging < rounds/20 {
		t.Errorf("managers of %d of %d nodes were merged: the generator has become one-sided", merging, rounds)
	}
}

// isOwn reports whether an entry is nodegate's own.
func isOwn(e metav1.ManagedFieldsEntry) bool {
	return (e.Manager == v1alpha1.FieldManager || e.Manager == release.FieldManager) && e.Operation == "Update" && e.Subresource == ""
}

// updating returns the number of entries that are updates.
func updating(entries []metav1.ManagedFieldsEntry) int {
	n := 0
	for _, e := range entries {
		if e.Operation == "Update" {
			n++
		}
	}
	return n
}

// TestForgeriesOfTheEleventh tests that nothing can be forged while the API server merges
// entries because nodegate is the eleventh manager.
func TestForgeriesOfTheEleventh(t *testing.T) {
	in := install(t)
	in.close(t)
	undisturbed(t, in)
	entries := append(updaters(10, func(i int) int64 { return int64(1_000_000 + i) }),
		entry("owner", "Apply", 7, `{"f:metadata":{"f:labels":{"f:example.com/k50":{}}}}`))
	node := create(t, in, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "eleventh", Labels: labelled(200), Annotations: labelled(3)}}, entries)
	const gain = `{"f:metadata":{"f:labels":{".":{},"f:example.com/k0":{},"f:example.com/k5":{},"f:example.com/k50":{},"f:example.com/k100":{}}}}`
	with := func(manager, fields string) []metav1.ManagedFieldsEntry {
		return changed(node.ManagedFields, func(e *metav1.ManagedFieldsEntry) {
			if e.Manager == manager {
				setFields(e, fields)
			}
		})
	}
	without := func(managers ...string) []metav1.ManagedFieldsEntry {
		return slices.DeleteFunc(slices.Clone(node.ManagedFields), func(e metav1.ManagedFieldsEntry) bool { return slices.Contains(managers, e.Manager) })
	}
	for name, test := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"nothing":                      {node.ManagedFields, ""},
		"the apply gains":              {with("owner", gain), onlyOwnFields},
		"a manager that stays gains":   {with("updater-5", gain), onlyOwnFields},
		"the oldest gains":             {with("updater-0", gain), onlyOwnFields},
		"the oldest gains a condition": {with("updater-0", `{"f:metadata":{"f:labels":{".":{},"f:example.com/k0":{}}},"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:type":{}}}}}`), onlyOwnFields},
		"the second oldest loses":      {with("updater-1", `{"f:metadata":{"f:labels":{".":{}}}}`), onlyOwnFields},
		"the oldest goes":              {without("updater-0"), onlyOwnFields},
		"the two oldest go":            {without("updater-0", "updater-1"), onlyOwnFields},
		"three go":                     {without("updater-0", "updater-1", "updater-2"), onlyOwnFields},
		"one not to be merged goes":    {without("updater-5"), onlyOwnFields},
		"the apply goes":               {without("owner"), onlyOwnFields},
		"ancient changes are forged":   {append(without("updater-0"), entry("ancient-changes", "Update", 1_000_000, gain)), onlyOwnFields},
	} {
		t.Run(name, func(t *testing.T) {
			patch := jsonPatch(op("add", "/metadata/annotations/gate.nodegate.dev~1one", `"{}"`), replaceFields(t, test.entries))
			_, err := in.nodegate.CoreV1().Nodes().Patch(t.Context(), node.Name, types.JSONPatchType, patch, ownDryRun)
			checkDenied(t, err, test.want)
		})
	}
}

// TestOverfullManagedFields tests the limits of managedFields that a kubelet wrote: the
// policy iterates over as many fields as any real node has, and over no more.
func TestOverfullManagedFields(t *testing.T) {
	in := install(t)
	in.close(t)
	undisturbed(t, in)
	applies := func(n int) []metav1.ManagedFieldsEntry {
		out := []metav1.ManagedFieldsEntry{entry("a", "Apply", 1, `{"f:spec":{"f:taints":{}}}`)}
		for i := range n - 1 {
			out = append(out, entry(fmt.Sprintf("m%d", i), "Apply", 7, `{"f:metadata":{"f:labels":{".":{},`+ownedKeys(5)+`}}}`))
		}
		return out
	}
	one := func(fields string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{entry("a", "Apply", 1, fields)}
	}
	tests := map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"255 entries":              {applies(255), ""}, // nodegate adds one
		"257 entries":              {applies(257), "the Node has 257 entries in metadata.managedFields, and nodegate may not write a Node with more than 256; remove"},
		"1,024 annotations":        {one(`{"f:metadata":{"f:annotations":{".":{},` + ownedKeys(1024) + `}},"f:spec":{"f:taints":{}}}`), ""},
		"1,026 annotations":        {one(`{"f:metadata":{"f:annotations":{` + ownedKeys(1026) + `}}}`), "the Node has too many fields in metadata.managedFields; remove"},
		"20,000 annotations":       {one(`{"f:metadata":{"f:annotations":{` + ownedKeys(20_000) + `}}}`), "the Node has too many fields in metadata.managedFields; remove"},
		"1,026 fields of metadata": {one(`{"f:metadata":{` + ownedKeys(1026) + `}}`), "the Node has too many fields in metadata.managedFields; remove"},
		"1,026 fields of spec":     {one(`{"f:spec":{` + ownedKeys(1026) + `}}`), "the Node has too many fields in metadata.managedFields; remove"},
		"1,026 fields":             {one(`{` + ownedKeys(1026) + `}`), "the Node has too many fields in metadata.managedFields; remove"},
		"20,000 labels":            {one(`{"f:metadata":{"f:labels":{` + ownedKeys(20_000) + `}},"f:spec":{"f:taints":{}}}`), ""},
	}
	patch := jsonPatch(op("add", "/spec/taints", `[{"key":"test.nodegate.dev/b","effect":"NoSchedule"}]`), op("add", "/metadata/annotations/gate.nodegate.dev~1one", `"{}"`))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// Replacing thousands of fields by hundreds of entries takes the API server long.
			node := create(t, in, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "overfull-fields", Annotations: labelled(1000)}}, test.entries)
			_, err := in.nodegate.CoreV1().Nodes().Patch(t.Context(), node.Name, types.JSONPatchType, patch, ownDryRun)
			checkDenied(t, err, test.want)
		})
	}
}

// A user who may write only nodes/status, as the node agent may, cannot forge managedFields:
// the API server ignores them in such a request.
func TestStatusPatchesForgeNoOwnership(t *testing.T) {
	in := install(t)
	undisturbed(t, in)
	before := owned(t, in, "status-forgeries")
	patcher := newUser(t, in, "status-patcher", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}}).CoreV1().Nodes()
	for what, forged := range map[string][]metav1.ManagedFieldsEntry{
		"of others": changed(before.ManagedFields, func(e *metav1.ManagedFieldsEntry) { setFields(e, `{"f:metadata":{"f:labels":{"f:zone":{}}}}`) }),
		"none":      {{}},
	} {
		value, err := json.Marshal(forged)
		if err != nil {
			t.Fatal(err)
		}
		for kind, patch := range map[types.PatchType][]byte{
			types.JSONPatchType:  jsonPatch(replaceFields(t, forged)),
			types.MergePatchType: fmt.Appendf(nil, `{"metadata":{"managedFields":%s}}`, value),
		} {
			after, err := patcher.Patch(t.Context(), before.Name, kind, patch, metav1.PatchOptions{FieldManager: "cloud"}, "status")
			if err != nil {
				t.Errorf("%s, %s: %v", what, kind, err)
			} else if diff := cmp.Diff(before.ManagedFields, after.ManagedFields); diff != "" {
				t.Errorf("%s, %s: managedFields (-before +after):\n%s", what, kind, diff)
			}
		}
	}
}
