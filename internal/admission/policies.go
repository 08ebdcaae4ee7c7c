// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Names of the policies. Each has a binding of the same name. The anchor (see birth.yaml), which does
// nothing, allows those of BirthPolicy and TolerationsPolicy to be deleted and created again.
const (
	// BirthPolicy closes gates while a Node is being created.
	BirthPolicy = "nodegate-birth"
	// BirthAnchor is the anchor.
	BirthAnchor = "nodegate-birth-anchor"
	// TolerationsPolicy adds tolerations to the DaemonSets that gates wait for.
	TolerationsPolicy = v1alpha1.TolerationsPolicy
	// ConfinementPolicy confines nodegate's own ServiceAccount.
	ConfinementPolicy = "nodegate-confinement"
	// RecordsPolicy prevents other users from writing nodegate's records.
	RecordsPolicy = "nodegate-records"
	// ParametersPolicy guards the parameters of BirthPolicy and TolerationsPolicy, and
	// all other PodTemplates in nodegate's namespace.
	ParametersPolicy = "nodegate-parameters"
	// AcknowledgePolicy requires that the author of a NodeGate has a verb for each
	// danger that the NodeGate acknowledges.
	AcknowledgePolicy = "nodegate-acknowledge"
	// DaemonPodsPolicy lets only the DaemonSet controller create pods of DaemonSets.
	DaemonPodsPolicy = "nodegate-daemon-pods"
)

var (
	//go:embed birth.yaml
	birthYAML string
	//go:embed tolerations.yaml
	tolerationsYAML string
	//go:embed guards.yaml
	guardsYAML string
)

// Options are the properties of an installation that the policies contain.
type Options struct {
	// Namespace is the namespace of nodegate and its parameter.
	Namespace string
	// ServiceAccount is the name of nodegate's ServiceAccount in Namespace.
	ServiceAccount string
	// AllowedTaintKeys are the taints that nodegate may use, each as key:Effect, or as
	// key for key:NoSchedule, in any order.
	AllowedTaintKeys []string
	// AllowedStampAnnotations are the keys of the annotations on Nodes that nodegate
	// may set to a time, in any order.
	AllowedStampAnnotations []string
	// PlainOptOut makes the opt-out label that kubelets can set effective.
	PlainOptOut bool
	// Birth specifies how gates are closed on new nodes. Defaults to ByPolicy.
	Birth Birth
	// WithoutCRD omits AcknowledgePolicy, because there are no NodeGates to guard.
	WithoutCRD bool
	// GuardDaemonPods adds DaemonPodsPolicy.
	GuardDaemonPods bool
	// DaemonPodCreators are the names of further users that may create pods that count
	// as pods of DaemonSets, in any order.
	DaemonPodCreators []string
}

// Birth is a way to close gates on nodes while they are being created.
type Birth string

const (
	// ByPolicy closes gates by a MutatingAdmissionPolicy. It requires Kubernetes 1.36.
	ByPolicy Birth = "policy"
	// ByWebhook closes gates by a webhook that nodegate serves.
	ByWebhook Birth = "webhook"
)

// Username returns the user name of nodegate's ServiceAccount.
func (o Options) Username() string {
	return "system:serviceaccount:" + o.Namespace + ":" + o.ServiceAccount
}

// validate rejects options that would result in a policy that the API server rejects,
// or in one that guards something other than intended.
func (o Options) validate() error {
	var errs []error
	if msgs := validation.IsDNS1123Label(o.Namespace); msgs != nil {
		errs = append(errs, fmt.Errorf("namespace %q: %s", o.Namespace, strings.Join(msgs, "; ")))
	}
	if msgs := validation.IsDNS1123Subdomain(o.ServiceAccount); msgs != nil {
		errs = append(errs, fmt.Errorf("service account %q: %s", o.ServiceAccount, strings.Join(msgs, "; ")))
	}
	allowed, err := gate.ParseAllowedTaints(o.AllowedTaintKeys)
	errs = append(errs, err)
	for id := range allowed {
		switch {
		case strings.HasPrefix(id.Key, v1alpha1.CoreTaintPrefix) && id.Key != v1alpha1.TaintOutOfService:
			errs = append(errs, fmt.Errorf("allowed taint %q: keys under %s belong to Kubernetes, and gates may use none of them except %s",
				id, v1alpha1.CoreTaintPrefix, v1alpha1.TaintOutOfService))
		case v1alpha1.AffectsAllGates(id.Key):
			errs = append(errs, fmt.Errorf("allowed taint %q: the key marks nodes that are being set up or shut down, which affects every gate; gates must use another key", id))
		}
	}
	for _, key := range o.AllowedStampAnnotations {
		if err := validateStamp(key); err != nil {
			errs = append(errs, fmt.Errorf("allowed stamp annotation %q: %w", key, err))
		}
	}
	for _, user := range o.DaemonPodCreators {
		if !username.MatchString(user) {
			errs = append(errs, fmt.Errorf("daemon pod creator %q: must be system:serviceaccount:NAMESPACE:NAME, or a user name of letters, digits and @:._-", user))
		}
	}
	if o.Birth != "" && o.Birth != ByPolicy && o.Birth != ByWebhook {
		errs = append(errs, fmt.Errorf("birth is %q: must be %q or %q", o.Birth, ByPolicy, ByWebhook))
	}
	return errors.Join(errs...)
}

// username matches user names that need no escaping in YAML or CEL.
var username = regexp.MustCompile(`^[A-Za-z0-9@:._-]+$`)

// validateStamp rejects annotations that nodegate must not write.
func validateStamp(key string) error {
	if msgs := validation.IsQualifiedName(strings.ToLower(key)); msgs != nil { // as annotations are validated
		return errors.New(strings.Join(msgs, "; "))
	}
	domain, _, hasDomain := strings.Cut(key, "/")
	for _, reserved := range []string{"nodegate.dev", "kubernetes.io"} {
		if hasDomain && (domain == reserved || strings.HasSuffix(domain, "."+reserved)) {
			return fmt.Errorf("annotations under %s are reserved; choose another key", reserved)
		}
	}
	return nil
}

// Policies returns the admission policies and their bindings, ready to be applied. Each
// binding follows its policy. The birth policy and the tolerations policy are omitted if
// Birth is ByWebhook, because they require the same version of Kubernetes. Equal options
// result in equal objects.
func Policies(o Options) ([]client.Object, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("rendering the admission policies: %w", err)
	}
	o.AllowedStampAnnotations = slices.Compact(slices.Sorted(slices.Values(o.AllowedStampAnnotations)))
	o.DaemonPodCreators = slices.Compact(slices.Sorted(slices.Values(o.DaemonPodCreators)))

	objects, err := decode(strings.NewReader(o.render()))
	if err != nil {
		return nil, fmt.Errorf("reading the rendered admission policies: %w", err)
	}
	return slices.DeleteFunc(objects, func(object client.Object) bool {
		return o.WithoutCRD && object.GetName() == AcknowledgePolicy || !o.GuardDaemonPods && object.GetName() == DaemonPodsPolicy
	}), nil
}

// render replaces the placeholders in the policies. It does not use text/template,
// which makes the linker keep all exported methods of all types: the program would be
// half as large again, also in memory.
func (o Options) render() string {
	var allowed []string
	taints, _ := gate.ParseAllowedTaints(o.AllowedTaintKeys) // validated before
	for id := range taints {
		allowed = append(allowed, id.String())
	}
	slices.Sort(allowed)
	text := guardsYAML
	if o.Birth != ByWebhook {
		text = birthYAML + "---\n" + tolerationsYAML + "---\n" + guardsYAML
	}
	return strings.NewReplacer(
		"{{ namespace }}", strconv.Quote(o.Namespace),
		"{{ username }}", strconv.Quote(o.Username()),
		"{{ allowedTaints }}", quoteAll(allowed),
		"{{ optOutLabels }}", quoteAll(o.optOutLabels()),
		"{{ allowedStampAnnotations }}", quoteAll(o.AllowedStampAnnotations),
		"{{ daemonPodCreators }}", quoteAll(o.DaemonPodCreators),
	).Replace(text)
}

// optOutLabels returns the labels with which a Node opts out of all gates.
func (o Options) optOutLabels() []string {
	if o.PlainOptOut {
		return []string{v1alpha1.OptOutLabel, v1alpha1.PlainOptOutLabel}
	}
	return []string{v1alpha1.OptOutLabel}
}

// quoteAll returns a list of strings that is valid CEL and valid JSON.
func quoteAll(texts []string) string {
	quoted := make([]string, 0, len(texts))
	for _, text := range texts {
		quoted = append(quoted, strconv.Quote(text))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// decode reads YAML documents and rejects unknown fields.
func decode(r io.Reader) ([]client.Object, error) {
	var objects []client.Object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("splitting documents: %w", err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, fmt.Errorf("reading a document's kind: %w", err)
		}
		object, err := newObject(kind.Kind)
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return nil, fmt.Errorf("reading a %s: %w", kind.Kind, err)
		}
		objects = append(objects, object)
	}
}

func newObject(kind string) (client.Object, error) {
	switch kind {
	case "MutatingAdmissionPolicy":
		return &admissionregistrationv1.MutatingAdmissionPolicy{}, nil
	case "MutatingAdmissionPolicyBinding":
		return &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, nil
	case "ValidatingAdmissionPolicy":
		return &admissionregistrationv1.ValidatingAdmissionPolicy{}, nil
	case "ValidatingAdmissionPolicyBinding":
		return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, nil
	default:
		return nil, fmt.Errorf("a document of kind %q is not an admission policy", kind)
	}
}

// Allowed returns the taints and the stamp annotations that an installed
// ConfinementPolicy allows. It fails if Policies did not create the policy.
func Allowed(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (taints gate.AllowedTaints, stamps map[string]bool, err error) {
	lists := map[string][]string{}
	for _, v := range policy.Spec.Variables {
		if v.Name != "allowed" && v.Name != "stamps" {
			continue
		}
		texts := []string{} // see quoteAll
		if err := json.Unmarshal([]byte(v.Expression), &texts); err != nil {
			return nil, nil, fmt.Errorf("reading variable %s of policy %s: %w", v.Name, policy.Name, err)
		}
		lists[v.Name] = texts
	}
	if lists["allowed"] == nil || lists["stamps"] == nil {
		return nil, nil, fmt.Errorf("policy %s does not have the variables allowed and stamps", policy.Name)
	}
	if taints, err = gate.ParseAllowedTaints(lists["allowed"]); err != nil {
		return nil, nil, fmt.Errorf("reading policy %s: %w", policy.Name, err)
	}
	stamps = make(map[string]bool, len(lists["stamps"]))
	for _, text := range lists["stamps"] {
		stamps[text] = true
	}
	return taints, stamps, nil
}
