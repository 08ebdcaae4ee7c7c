// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gate"
)

// Parts of the guards' messages.
const (
	onlyTaints      = "only allowed taints (node.kubernetes.io/out-of-service:NoExecute, test.nodegate.dev/a:NoSchedule, test.nodegate.dev/b:NoExecute, test.nodegate.dev/b:NoSchedule, test.nodegate.dev/c:NoSchedule)"
	onlyRecords     = "only annotations under gate.nodegate.dev/"
	noOverrides     = "may only remove annotations under override.nodegate.dev/"
	overrideForm    = "an override of a gate must have the form"
	overrideOfNode  = "an override must name its Node"
	noMetadata      = "may not change labels, owner references, finalizers"
	noSpec          = "may not change a Node's spec except taints"
	noStatus        = "may change only conditions under deadline.nodegate.dev/ in a Node's status"
	noMetaByStatus  = "may not change a Node's metadata by a write to nodes/status"
	dryRunOnly      = "may create Nodes only in a dry run"
	noDelete        = "may not delete Nodes"
	onlyTimes       = "may set it only to a Unix time in seconds"
	overfull        = "the Node has 20001 annotations, and nodegate may not write a Node with more than 1024; remove"
	recordsGuarded  = "are nodegate's records of this node"
	tooMany         = "more than 1024 annotations, too many"
	parametersOwned = "PodTemplates in this namespace may be written only by nodegate"
	onlyParameter   = "may write only the PodTemplates nodegate-birth"
	onlyAllowed     = "may add only allowed taints to new nodes"
	onlyOwnFields   = "may not change which fields of a Node other managers own"
	ownsNothingElse = "may own no field of a Node"
	onlyOwnManager  = "only as field manager nodegate"
)

// jsonPatch returns a JSON Patch of the operations.
func jsonPatch(operations ...string) []byte {
	return []byte("[" + strings.Join(operations, ",") + "]")
}

func op(name, path, value string) string {
	return fmt.Sprintf(`{"op":%q,"path":%q,"value":%s}`, name, path, value)
}

// checkDenied checks that the error contains the message, or is nil if that is "".
func checkDenied(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("denied: %v", err)
	case want != "" && err == nil:
		t.Errorf("allowed, want a denial with %q", want)
	case want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want)):
		t.Errorf("denied by %q, want a 403 with %q", err, want)
	}
}

// gated creates a node with two foreign taints, one of nodegate's between them, and all
// kinds of metadata that nodegate must not change.
func gated(t *testing.T, in *installation) *corev1.Node {
	t.Helper()
	in.leave(t) // so that the birth policy does not remove the record
	added := metav1.NewTime(time.Now().Truncate(time.Second))
	evicting := withEffect(foreign2, corev1.TaintEffectNoExecute)
	evicting.TimeAdded = &added
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "gated-",
			Labels:       map[string]string{"zone": "a"},
			Annotations:  map[string]string{overridePrefix + "one": "over", "other": "x", "example.com/opened-at": "1700000000", prefix + "one": recordA},
			Finalizers:   []string{"example.com/cleanup"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{foreign, taintA, evicting}},
	}
	created, err := in.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		deleteNode(t, in, created.Name)
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := in.admin.CoreV1().Nodes().Patch(context.Background(), created.Name, mergePatch, patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	return created
}

// TestConfinement tests what nodegate may write to a node. RBAC allows everything.
func TestConfinement(t *testing.T) {
	in := install(t)
	node := gated(t, in)
	record := strings.ReplaceAll(prefix, "/", "~1")
	tests := map[string]struct {
		patch        string
		subresources []string
		want         string
	}{
		"opens":                         {patch: op("remove", "/spec/taints/1", "null") + "," + op("replace", "/metadata/annotations/"+record+"one", `"{}"`)},
		"closes with another key":       {patch: op("add", "/spec/taints/-", `{"key":"test.nodegate.dev/b","effect":"NoExecute"}`)},
		"closes at the front":           {patch: op("add", "/spec/taints/0", `{"key":"test.nodegate.dev/b","effect":"NoExecute"}`)},
		"changes its value":             {patch: op("add", "/spec/taints/1/value", `"x"`)},
		"drops a record":                {patch: op("remove", "/metadata/annotations/"+record+"one", "null")},
		"adds a record":                 {patch: op("add", "/metadata/annotations/"+record+"two", `"{}"`)},
		"withdraws an override":         {patch: op("remove", "/metadata/annotations/override.nodegate.dev~1one", "null")},
		"changes an override":           {patch: op("replace", "/metadata/annotations/override.nodegate.dev~1one", `"x"`), want: noOverrides},
		"empties an override":           {patch: op("replace", "/metadata/annotations/override.nodegate.dev~1one", `""`), want: noOverrides},
		"overrides a gate":              {patch: op("add", "/metadata/annotations/override.nodegate.dev~1two", `"x"`), want: noOverrides},
		"stamps an opening":             {patch: op("replace", "/metadata/annotations/example.com~1opened-at", `"1763654400"`)},
		"stamps no time":                {patch: op("replace", "/metadata/annotations/example.com~1opened-at", `"1763654400s"`), want: onlyTimes},
		"stamps nothing":                {patch: op("replace", "/metadata/annotations/example.com~1opened-at", `""`), want: onlyTimes},
		"removes a stamp":               {patch: op("remove", "/metadata/annotations/example.com~1opened-at", "null"), want: onlyTimes},
		"stamps another annotation":     {patch: op("add", "/metadata/annotations/example.com~1opened-at2", `"1763654400"`), want: "allowed stamps (example.com/opened-at)"},
		"tests only":                    {patch: op("test", "/metadata/name", `"`+node.Name+`"`)},
		"adds a foreign taint":          {patch: op("add", "/spec/taints/-", `{"key":"example.com/x","effect":"NoSchedule"}`), want: onlyTaints},
		"adds a similar key":            {patch: op("add", "/spec/taints/-", `{"key":"test.nodegate.dev/aa","effect":"NoSchedule"}`), want: onlyTaints},
		"adds an effect not allowed":    {patch: op("add", "/spec/taints/-", `{"key":"test.nodegate.dev/a","effect":"NoExecute"}`), want: onlyTaints},
		"makes its taint evict":         {patch: op("replace", "/spec/taints/1/effect", `"NoExecute"`), want: onlyTaints},
		"adds core's key":               {patch: op("add", "/spec/taints/-", `{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"}`), want: onlyTaints},
		"removes a foreign taint":       {patch: op("remove", "/spec/taints/0", "null"), want: onlyTaints},
		"removes all taints":            {patch: op("remove", "/spec/taints", "null"), want: onlyTaints},
		"changes a foreign value":       {patch: op("replace", "/spec/taints/0/value", `"cpu"`), want: onlyTaints},
		"changes a foreign effect":      {patch: op("replace", "/spec/taints/0/effect", `"NoExecute"`), want: onlyTaints},
		"changes a foreign time":        {patch: op("remove", "/spec/taints/2/timeAdded", "null"), want: onlyTaints},
		"reorders foreign taints":       {patch: `{"op":"move","from":"/spec/taints/0","path":"/spec/taints/2"}`, want: onlyTaints},
		"renames its taint to foreign":  {patch: op("replace", "/spec/taints/1/key", `"example.com/x"`), want: onlyTaints},
		"sets a label":                  {patch: op("add", "/metadata/labels/x", `"y"`), want: noMetadata},
		"drops the labels":              {patch: op("remove", "/metadata/labels", "null"), want: noMetadata},
		"sets an owner":                 {patch: op("add", "/metadata/ownerReferences", `[{"apiVersion":"v1","kind":"Node","name":"x","uid":"y"}]`), want: noMetadata},
		"removes a finalizer":           {patch: op("remove", "/metadata/finalizers/0", "null"), want: noMetadata},
		"changes another annotation":    {patch: op("replace", "/metadata/annotations/other", `"y"`), want: onlyRecords},
		"removes another annotation":    {patch: op("remove", "/metadata/annotations/other", "null"), want: onlyRecords},
		"adds a similar annotation":     {patch: op("add", "/metadata/annotations/gate.nodegate.development~1x", `"y"`), want: onlyRecords},
		"drops the annotations":         {patch: op("remove", "/metadata/annotations", "null"), want: onlyRecords},
		"cordons":                       {patch: op("add", "/spec/unschedulable", "true"), want: noSpec},
		"sets the provider ID":          {patch: op("add", "/spec/providerID", `"x://y"`), want: noSpec},
		"sets the pod CIDR":             {patch: op("add", "/spec/podCIDR", `"10.0.0.0/24"`) + "," + op("add", "/spec/podCIDRs", `["10.0.0.0/24"]`), want: noSpec},
		"writes the status":             {patch: op("add", "/status/phase", `"Running"`), subresources: []string{"status"}, want: noStatus},
		"writes a record by the status": {patch: op("add", "/metadata/annotations/"+record+"two", `"{}"`), subresources: []string{"status"}, want: noMetaByStatus},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := in.nodegate.CoreV1().Nodes().Patch(t.Context(), node.Name, types.JSONPatchType, jsonPatch(test.patch), ownDryRun, test.subresources...)
			checkDenied(t, err, test.want)
			if _, err := in.admin.CoreV1().Nodes().Patch(t.Context(), node.Name, types.JSONPatchType, jsonPatch(test.patch), dryRunPatch, test.subresources...); apierrors.IsInvalid(err) {
				t.Errorf("the patch itself is wrong: %v", err)
			}
		})
	}
}

// TestConfinementToPatches tests that nodegate creates Nodes only in dry runs, and
// deletes none.
func TestConfinementToPatches(t *testing.T) {
	in := install(t)
	node := gated(t, in)
	nodes := in.nodegate.CoreV1().Nodes()
	probe := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}

	_, err := nodes.Create(t.Context(), probe, metav1.CreateOptions{DryRun: dryRun})
	checkDenied(t, err, "")
	_, err = nodes.Create(t.Context(), probe, metav1.CreateOptions{})
	checkDenied(t, err, dryRunOnly)
	checkDenied(t, nodes.Delete(t.Context(), node.Name, metav1.DeleteOptions{}), noDelete)
	checkDenied(t, nodes.Delete(t.Context(), node.Name, metav1.DeleteOptions{DryRun: dryRun}), noDelete)
	checkDenied(t, nodes.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "zone=a"}), noDelete)
	_, err = in.nodegate.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + node.Name + "/proxy/metrics").DoRaw(t.Context())
	if !apierrors.IsForbidden(err) { // the client does not read the message of the proxy's answer
		t.Errorf("proxying to a kubelet: %v, want it denied", err)
	}

	apply := []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + node.Name + `"},"spec":{"unschedulable":true}}`)
	_, err = nodes.Patch(t.Context(), node.Name, types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "nodegate"})
	checkDenied(t, err, noSpec)
	apply = bytes.ReplaceAll(apply, []byte(node.Name), []byte("not-there"))
	_, err = nodes.Patch(t.Context(), "not-there", types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "nodegate"})
	checkDenied(t, err, dryRunOnly)
}

// TestRecords tests who may write records.
func TestRecords(t *testing.T) {
	in := install(t)
	node := gated(t, in)
	kubelet := as(t, in.Node(node.Name))
	editor := newUser(t, in, "editor", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}})
	overrider := newUser(t, in, "overrider",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates"}, Verbs: []string{"override"}})

	const (
		change    = `{"metadata":{"annotations":{"gate.nodegate.dev/one":"{}"}}}`
		add       = `{"metadata":{"annotations":{"gate.nodegate.dev/new":"{}"}}}`
		remove    = `{"metadata":{"annotations":{"gate.nodegate.dev/one":null}}}`
		removeAll = `{"metadata":{"annotations":null}}`
		another   = `{"metadata":{"annotations":{"other":"y","gate.nodegate.development/x":"y"}}}`
		heartbeat = `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
		both      = `{"metadata":{"annotations":{"gate.nodegate.dev/one":"{}"}},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
		labels    = `{"metadata":{"labels":{"x":"y"}}}`
	)
	tests := map[string]struct {
		by    *kubernetes.Clientset
		patch string
		want  string
	}{
		"kubelet sends a heartbeat": {kubelet, heartbeat, ""},
		"kubelet annotates":         {kubelet, another, ""},
		"kubelet labels":            {kubelet, labels, ""},
		"kubelet changes one":       {kubelet, change, recordsGuarded},
		"kubelet adds one":          {kubelet, add, recordsGuarded},
		"kubelet removes one":       {kubelet, remove, recordsGuarded},
		"kubelet removes all":       {kubelet, removeAll, recordsGuarded},
		"kubelet changes both":      {kubelet, both, recordsGuarded},
		"editor changes one":        {editor, change, recordsGuarded},
		"editor labels":             {editor, labels, ""},
		"overrider changes one":     {overrider, change, ""},
		"overrider removes all":     {overrider, removeAll, ""},
		"admin changes one":         {in.admin, change, ""},
	}
	for name, test := range tests {
		for _, subresource := range []string{"", "status"} {
			t.Run(name+" by nodes/"+subresource, func(t *testing.T) {
				_, err := test.by.CoreV1().Nodes().Patch(t.Context(), node.Name, mergePatch, []byte(test.patch), dryRunPatch, subresource)
				checkDenied(t, err, test.want)
			})
		}
	}
}

const overridePrefix = v1alpha1.OverrideAnnotationPrefix

// TestOverrides tests who may override a gate on a node, and the form of overrides.
func TestOverrides(t *testing.T) {
	in := install(t)
	node := gated(t, in)
	kubelet := as(t, in.Node(node.Name))
	nodes := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"*"}}
	editor := newUser(t, in, "override-editor", nodes)
	overrider := newUser(t, in, "override-overrider", nodes,
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"nodegates"}, Verbs: []string{"override"}})
	uid := string(node.UID)
	override := func(state, until, reason, uid string) string {
		return fmt.Sprintf(`{"state":%q,"until":%q,"reason":%q,"uid":%q}`, state, until, reason, uid)
	}
	const noon = "2026-11-20T12:00:00Z"
	good := override("Open", noon, "x", uid)
	tests := map[string]struct {
		by    *kubernetes.Clientset
		value any
		want  string
	}{
		"kubelet opens its own gate":      {kubelet, good, recordsGuarded},
		"kubelet closes":                  {kubelet, override("Closed", noon, "x", uid), recordsGuarded},
		"kubelet ends one":                {kubelet, nil, recordsGuarded},
		"editor":                          {editor, good, recordsGuarded},
		"editor ends one":                 {editor, nil, recordsGuarded},
		"overrider":                       {overrider, good, ""},
		"overrider closes":                {overrider, override("Closed", noon, "x", uid), ""},
		"overrider ends one":              {overrider, nil, ""},
		"admin":                           {in.admin, good, ""},
		"a reason with quotes":            {overrider, override("Open", noon, `he said: "open", \ {}`, uid), ""},
		"the longest reason":              {overrider, override("Open", noon, strings.Repeat("é", 256), uid), ""},
		"a different order, with spaces":  {overrider, `{ "uid" : "` + uid + `" , "reason" : "x", "until": "2026-11-20T12:00:00.5+02:00", "state": "Open" } `, ""},
		"not JSON":                        {overrider, "Open", overrideForm},
		"empty":                           {overrider, "", overrideForm},
		"two objects":                     {overrider, good + good, overrideForm},
		"another state":                   {overrider, override("open", noon, "x", uid), overrideForm},
		"no reason":                       {overrider, override("Open", noon, "", uid), overrideForm},
		"too long a reason":               {overrider, override("Open", noon, strings.Repeat("é", 257), uid), overrideForm},
		"no time":                         {overrider, override("Open", "in an hour", "x", uid), overrideForm},
		"no zone":                         {overrider, override("Open", "2026-11-20T12:00:00", "x", uid), overrideForm},
		"no end":                          {overrider, `{"state":"Open","reason":"x","uid":"` + uid + `"}`, overrideForm},
		"a number":                        {overrider, `{"state":"Open","until":1,"reason":"x","uid":"` + uid + `"}`, overrideForm},
		"another field":                   {overrider, `{"state":"Open","until":"` + noon + `","reason":"x","uid":"` + uid + `","for":"1h"}`, overrideForm},
		"a trailing comma":                {overrider, `{"state":"Open","until":"` + noon + `","reason":"x","uid":"` + uid + `",}`, overrideForm},
		"a key twice":                     {overrider, `{"state":"Closed","state":"Open","until":"` + noon + `","uid":"` + uid + `"}`, overrideForm},
		"a key in capitals":               {overrider, `{"state":"Closed","State":"Open","reason":"x","until":"` + noon + `","uid":"` + uid + `"}`, overrideForm},
		"a key with an escape":            {overrider, `{"st\u0061te":"Open","until":"` + noon + `","reason":"x","uid":"` + uid + `"}`, overrideForm},
		"a state with an escape":          {overrider, `{"state":"Op\u0065n","until":"` + noon + `","reason":"x","uid":"` + uid + `"}`, overrideForm},
		"a reason of escapes":             {overrider, `{"state":"Open","until":"` + noon + `","reason":"` + strings.Repeat(`\u00e9`, 256) + `","uid":"` + uid + `"}`, ""},
		"a reason of too many escapes":    {overrider, `{"state":"Open","until":"` + noon + `","reason":"` + strings.Repeat(`\u00e9`, 257) + `","uid":"` + uid + `"}`, overrideForm},
		"an invalid escape":               {overrider, `{"state":"Open","until":"` + noon + `","reason":"\x","uid":"` + uid + `"}`, overrideForm},
		"half an escape":                  {overrider, `{"state":"Open","until":"` + noon + `","reason":"\u00e","uid":"` + uid + `"}`, overrideForm},
		"a line break in the reason":      {overrider, "{\"state\":\"Open\",\"until\":\"" + noon + "\",\"reason\":\"x\ny\",\"uid\":\"" + uid + "\"}", overrideForm},
		"line breaks between":             {overrider, "{\n\t\"state\":\"Open\",\r\n\"until\":\"" + noon + "\",\"reason\":\"x\",\"uid\":\"" + uid + "\"\n}\n", ""},
		"a form feed after it":            {overrider, good + "\f", overrideForm},
		"no such month":                   {overrider, override("Open", "2026-13-20T12:00:00Z", "x", uid), overrideForm},
		"no such hour":                    {overrider, override("Open", "2026-11-20T25:00:00Z", "x", uid), overrideForm},
		"no such zone":                    {overrider, override("Open", "2026-11-20T12:00:00+29:00", "x", uid), overrideForm},
		"a list around it":                {overrider, "[" + good + "]", overrideForm},
		"nested":                          {overrider, `{"state":"Open","until":"` + noon + `","reason":{"reason":"x"},"uid":"` + uid + `"}`, overrideForm},
		"too long":                        {overrider, `{"state":"Open",` + strings.Repeat(" ", 5000) + `"until":"` + noon + `","reason":"x","uid":"` + uid + `"}`, overrideForm},
		"for no Node":                     {overrider, override("Open", noon, "x", ""), `must name its Node: set "uid":"` + uid + `"`},
		"for another Node":                {overrider, override("Open", noon, "x", "8c1b5f9e-3f0e-4d6c-9b57-0c6f7c6f0a11"), overrideOfNode},
		"for another Node, in the reason": {overrider, override("Open", noon, `"uid":"`+uid+`"`, "y"), overrideOfNode},
	}
	// The core also accepts these.
	accepted := []string{"too long", "a key in capitals", "a key with an escape", "a state with an escape"}
	for name, test := range tests {
		for _, subresource := range []string{"", "status"} {
			t.Run(name+" by nodes/"+subresource, func(t *testing.T) {
				patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{overridePrefix + "one": test.value}}})
				if err != nil {
					t.Fatal(err)
				}
				_, err = test.by.CoreV1().Nodes().Patch(t.Context(), node.Name, mergePatch, patch, dryRunPatch, subresource)
				checkDenied(t, err, test.want)
				if raw, ok := test.value.(string); ok && (test.want == "" || test.want == overrideForm) {
					if _, err := gate.ParseOverride(raw); (err == nil) != (test.want == "" || slices.Contains(accepted, name)) {
						t.Errorf("parsing %s: %v", raw, err)
					}
				}
			})
		}
	}
}

// TestKubeletBringsAnOverride tests that a node can register with an override, which
// does not open its gate: it cannot contain the UID of the Node being created.
func TestKubeletBringsAnOverride(t *testing.T) {
	in := installBirth(t)
	mine := label(t)
	ng := newGate("one", "a", metav1.LabelSelector{MatchLabels: mine})
	in.close(t, ng)
	kubelet := as(t, in.Node("liar")).CoreV1().Nodes()
	const wish = "8c1b5f9e-3f0e-4d6c-9b57-0c6f7c6f0a11"
	until := time.Now().Add(time.Hour)
	for name, uid := range map[string]types.UID{"a UID that it asks for": wish, "none": "", "a pattern": ".*"} {
		t.Run(name, func(t *testing.T) {
			brought := gate.Override{State: v1alpha1.StateOpen, Until: until, Reason: "mine", UID: uid}.String()
			created, err := kubelet.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: "liar", UID: uid, Labels: mine, Annotations: map[string]string{overridePrefix + "one": brought, overridePrefix + "follows": brought},
			}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("registering: %v", err)
			}
			t.Cleanup(func() { deleteNode(t, in, created.Name) })
			if _, err := kubelet.Patch(t.Context(), "liar", mergePatch, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status"); err != nil {
				t.Errorf("sending a heartbeat: %v", err)
			}
			mine := gate.Override{State: v1alpha1.StateOpen, Until: until, Reason: "mine", UID: created.UID}.String()
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, overridePrefix+"one", mine)
			_, err = kubelet.Patch(t.Context(), "liar", mergePatch, []byte(patch), metav1.PatchOptions{}, "status")
			checkDenied(t, err, recordsGuarded)

			selector, err := ng.Spec.NodeSelector.AsSelector()
			if err != nil {
				t.Fatal(err)
			}
			facts := gate.Facts{Node: gate.Node{
				Name: created.Name, UID: created.UID, Created: created.CreationTimestamp.Time, Labels: created.Labels, Taints: created.Spec.Taints,
				Records:   map[string]string{"one": created.Annotations[prefix+"one"]},
				Overrides: map[string]string{"one": created.Annotations[overridePrefix+"one"], "follows": created.Annotations[overridePrefix+"follows"]},
			}}
			one := gate.Gate{Name: "one", Source: v1alpha1.SourceCRD, Accepted: true, Selector: selector, Taint: ng.Spec.Taint}
			d := gate.Decide([]gate.Gate{one}, &facts, time.Now())
			if d.Changes || d.Ignored["one"] == "" || d.Ignored["follows"] == "" || d.Verdicts[0].After != v1alpha1.StateClosed {
				t.Errorf("decision: %+v", d)
			}
		})
	}
}

// newUser returns a client of a user with these permissions.
func newUser(t *testing.T, in *installation, name string, rules ...rbacv1.PolicyRule) *kubernetes.Clientset {
	t.Helper()
	rbac := in.admin.RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = rbac.ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	clientset := as(t, in.User(name))
	// The authorizer receives new roles asynchronously.
	eventually(t, func() error {
		_, err := clientset.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{Limit: 1})
		return err
	})
	return clientset
}

// TestLifeOfANode tests that the policies do not prevent a kubelet from registering
// with a record and sending heartbeats, nor a user without the permission to override
// from deleting the node.
func TestLifeOfANode(t *testing.T) {
	in := installBirth(t)
	in.close(t, newGate("one", "a", metav1.LabelSelector{MatchLabels: label(t)}))
	kubelet := as(t, in.Node("alive"))
	nodes := kubelet.CoreV1().Nodes()
	created, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "alive", Labels: label(t),
		Annotations: map[string]string{prefix + "one": `{"state":"Open"}`, prefix + "unknown": `{"state":"Open"}`},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("registering: %v", err)
	}
	t.Cleanup(func() { deleteNode(t, in, created.Name) })
	if got := created.Annotations[prefix+"one"]; got != recordA {
		t.Errorf("the record from the request is now %s, want %s", got, recordA)
	}
	for i := range 3 {
		patch := fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":"boot-%d"}}}`, i)
		if _, err := nodes.Patch(t.Context(), "alive", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Errorf("sending a heartbeat: %v", err)
		}
		// By PUT. Kubernetes writes a new node's taints at the same time, which causes
		// conflicts, or rejections because the kubelet seems to change taints.
		eventually(t, func() error {
			node, err := nodes.Get(t.Context(), "alive", metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
			return err
		})
	}
	janitor := newUser(t, in, "janitor", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "delete"}})
	if err := janitor.CoreV1().Nodes().Delete(t.Context(), "alive", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

// TestLifeOfAnOverfullNode tests that a node with more annotations than a policy can
// iterate over can send heartbeats, and that its records remain guarded.
func TestLifeOfAnOverfullNode(t *testing.T) {
	in := install(t)
	in.leave(t) // so that the birth policy does not remove the record
	annotations := map[string]string{prefix + "one": recordA}
	for i := range 20_000 {
		annotations[fmt.Sprintf("k%d", i)] = ""
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "overfull", Annotations: annotations}}
	kubelet := as(t, in.Node("overfull"))
	nodes := kubelet.CoreV1().Nodes()
	if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNode(t, in, "overfull") })
	_, err := nodes.Patch(t.Context(), "overfull", mergePatch, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	checkDenied(t, err, "")
	_, err = nodes.Patch(t.Context(), "overfull", mergePatch, []byte(`{"metadata":{"annotations":{"gate.nodegate.dev/one":"{}"}}}`), metav1.PatchOptions{}, "status")
	checkDenied(t, err, tooMany)
	_, err = in.nodegate.CoreV1().Nodes().Patch(t.Context(), "overfull", mergePatch, []byte(`{"metadata":{"annotations":{"gate.nodegate.dev/one":"{}"}}}`), ownPatch)
	checkDenied(t, err, overfull)
	_, err = in.admin.CoreV1().Nodes().Patch(t.Context(), "overfull", mergePatch, []byte(`{"metadata":{"annotations":null}}`), metav1.PatchOptions{})
	checkDenied(t, err, "")
}

// TestOverridesOnAFullNode tests that many gates of a node can be overridden at once,
// and that the overrides end, on a node with as many annotations as nodegate accepts.
func TestOverridesOnAFullNode(t *testing.T) {
	in := install(t)
	annotations := map[string]any{}
	for i := range 920 {
		annotations[fmt.Sprintf("%sgate-%d", prefix, i)] = recordA
	}
	patchOf := func(annotations map[string]any) []byte {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		if err != nil {
			t.Fatal(err)
		}
		return patch
	}
	node, err := in.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "full"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNode(t, in, "full") })
	write := func(by *kubernetes.Clientset, annotations map[string]any) {
		t.Helper()
		_, err := by.CoreV1().Nodes().Patch(t.Context(), "full", mergePatch, patchOf(annotations), ownPatch)
		checkDenied(t, err, "")
	}
	write(in.nodegate, annotations)
	overrides, ended := map[string]any{}, map[string]any{}
	for i := range 100 {
		name := fmt.Sprintf("%sgate-%d", overridePrefix, i)
		overrides[name] = gate.Override{State: v1alpha1.StateOpen, Until: time.Now().Add(time.Hour), Reason: strings.Repeat("x", 256), UID: node.UID}.String()
		ended[name], ended[fmt.Sprintf("%sgate-%d", prefix, i)] = nil, "{}"
	}
	write(in.admin, overrides)
	write(in.nodegate, ended)
}

// TestParameters tests who may write the parameter, and what it may contain. No other
// PodTemplate may be created next to it.
func TestParameters(t *testing.T) {
	in := install(t)
	in.put(t, parameter())
	theirs, ours := in.admin.CoreV1().PodTemplates(options.Namespace), in.nodegate.CoreV1().PodTemplates(options.Namespace)
	for _, name := range []string{"another", "nodegate-birth-anchor", "one"} {
		another := parameter()
		another.Name, another.Labels = name, map[string]string{"nodegate.dev/birth": "never"}
		_, err := theirs.Create(t.Context(), another, metav1.CreateOptions{DryRun: dryRun})
		checkDenied(t, err, parametersOwned)
		_, err = ours.Create(t.Context(), another, metav1.CreateOptions{DryRun: dryRun})
		checkDenied(t, err, onlyParameter)
	}
	generated := parameter()
	generated.Name, generated.GenerateName = "", "nodegate-birth"
	_, err := ours.Create(t.Context(), generated, metav1.CreateOptions{DryRun: dryRun})
	checkDenied(t, err, onlyParameter)

	taint := func(key, effect string) string {
		return fmt.Sprintf(`{"template":{"spec":{"tolerations":[{"key":%q,"operator":"Equal","effect":%q}]}}}`, key, effect)
	}
	for name, test := range map[string]struct{ patch, want string }{
		"annotated":                     {`{"metadata":{"annotations":{"nodegate.dev/source":"files"}}}`, ""},
		"labelled":                      {`{"metadata":{"labels":{"nodegate.dev/birth":"true"}}}`, ""},
		"another allowed taint":         {taint("test.nodegate.dev/b", "NoExecute"), ""},
		"an effect that is not allowed": {taint("test.nodegate.dev/a", "NoExecute"), onlyAllowed},
		"every effect":                  {taint("test.nodegate.dev/a", ""), onlyAllowed},
		"a key that is not allowed":     {taint("example.com/x", "NoSchedule"), onlyAllowed},
		"out-of-service":                {taint(v1alpha1.TaintOutOfService, "NoSchedule"), onlyAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := theirs.Patch(t.Context(), v1alpha1.BirthParameter, mergePatch, []byte(test.patch), dryRunPatch)
			checkDenied(t, err, parametersOwned)
			_, err = ours.Patch(t.Context(), v1alpha1.BirthParameter, mergePatch, []byte(test.patch), dryRunPatch)
			checkDenied(t, err, test.want)
		})
	}
	checkDenied(t, theirs.Delete(t.Context(), v1alpha1.BirthParameter, metav1.DeleteOptions{}), parametersOwned)
	checkDenied(t, theirs.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}), parametersOwned)
	checkDenied(t, ours.Delete(t.Context(), v1alpha1.BirthParameter, metav1.DeleteOptions{}), onlyParameter)

	elsewhere := parameter()
	elsewhere.Namespace = metav1.NamespaceDefault
	_, err = in.admin.CoreV1().PodTemplates(metav1.NamespaceDefault).Create(t.Context(), elsewhere, metav1.CreateOptions{DryRun: dryRun})
	checkDenied(t, err, "")
}

// TestNamespaceDeletion tests that a namespace with a parameter can be deleted, and that any
// user who is permitted to may delete the parameter meanwhile, but not change it.
func TestNamespaceDeletion(t *testing.T) {
	in := install(t)
	leaving := admission.Options{Namespace: "leaving", ServiceAccount: "nodegate"}
	policies, err := admission.Policies(leaving)
	if err != nil {
		t.Fatal(err)
	}
	policies = slices.DeleteFunc(policies, func(o client.Object) bool { return o.GetName() != admission.ParametersPolicy })
	renamed(t, in, policies, "-leaving")
	namespaces := in.admin.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: leaving.Namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The finalizer prevents the namespace controller from finishing first.
	p := admission.Parameter(leaving.Namespace, v1alpha1.SourceCRD, nil)
	p.Finalizers = []string{"example.com/cleanup"}
	unfinalized := []byte(`{"metadata":{"finalizers":null}}`)
	ours := as(t, in.User("system:serviceaccount:leaving:nodegate", "system:masters")).CoreV1().PodTemplates(leaving.Namespace)
	theirs := in.admin.CoreV1().PodTemplates(leaving.Namespace)
	if _, err := ours.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		err := theirs.Delete(t.Context(), p.Name, metav1.DeleteOptions{DryRun: dryRun})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("the guard is not in force: deleting the parameter: %v", err)
	})
	if err := namespaces.Delete(t.Context(), leaving.Namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The guard receives the namespace asynchronously.
	eventually(t, func() error { return theirs.Delete(t.Context(), p.Name, metav1.DeleteOptions{}) })
	_, err = theirs.Patch(t.Context(), p.Name, mergePatch, unfinalized, metav1.PatchOptions{})
	checkDenied(t, err, parametersOwned)
	if _, err := ours.Patch(t.Context(), p.Name, mergePatch, unfinalized, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := namespaces.Get(t.Context(), leaving.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the namespace still exists (%w)", err)
	})
}
