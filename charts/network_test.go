// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"context"
	"reflect"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// callers returns the peers to which the NetworkPolicy opens a port of nodegate's pods.
type callers map[int32][]networkingv1.NetworkPolicyPeer

// everyone means that there is no restriction of peers.
var everyone []networkingv1.NetworkPolicyPeer

func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	servers := object{"ipBlock": object{"cidr": "10.0.0.0/28"}}
	monitoring := object{"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": "monitoring"}}}
	peer := func(o object) []networkingv1.NetworkPolicyPeer {
		t.Helper()
		var p networkingv1.NetworkPolicyPeer
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o, &p))
		return []networkingv1.NetworkPolicyPeer{p}
	}
	for name, test := range map[string]struct {
		policy  object
		version string
		want    callers
		egress  int
	}{
		"clients are not known":    {object{}, "1.35", callers{8080: everyone, 9443: everyone}, 0},
		"no webhook":               {object{"webhookFrom": []object{servers}}, "1.36", callers{8080: everyone}, 0},
		"both are limited":         {object{"webhookFrom": []object{servers}, "metricsFrom": []object{monitoring}}, "1.35", callers{8080: peer(monitoring), 9443: peer(servers)}, 0},
		"egress is limited":        {object{"egress": []object{{"to": []object{servers}, "ports": []object{{"protocol": "TCP", "port": 6443}}}}}, "1.36", callers{8080: everyone}, 1},
		"only metrics are limited": {object{"metricsFrom": []object{monitoring}}, "1.35", callers{8080: peer(monitoring), 9443: everyone}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			test.policy["enabled"] = true
			objects := rendered(t, object{"networkPolicy": test.policy, "webhook": object{"certificate": "existing"}}, "--kube-version", test.version)
			policy := decoded[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy nodegate-system/nodegate")
			pod := deployment(t, objects).Spec.Template
			if !labels.SelectorFromSet(policy.Spec.PodSelector.MatchLabels).Matches(labels.Set(pod.Labels)) {
				t.Errorf("the policy selects pods with %v, but nodegate's have %v", policy.Spec.PodSelector.MatchLabels, pod.Labels)
			}
			got := callers{}
			for _, rule := range policy.Spec.Ingress {
				for _, port := range rule.Ports {
					got[port.Port.IntVal] = rule.From
				}
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("open ports and their peers: %v, want %v", got, test.want)
			}
			for _, port := range pod.Spec.Containers[0].Ports {
				if _, open := got[port.ContainerPort]; !open && port.Name != "health" {
					t.Errorf("port %s is closed to everyone", port.Name)
				}
			}
			restricted := slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			if len(policy.Spec.Egress) != test.egress || restricted != (test.egress > 0) {
				t.Errorf("egress is restricted: %t, to %v", restricted, policy.Spec.Egress)
			}
			accepted(t, find(t, objects, "NetworkPolicy nodegate-system/nodegate"))
		})
	}
	for _, o := range rendered(t, object{}) {
		if o.GetKind() == "NetworkPolicy" {
			t.Error("a NetworkPolicy exists by default")
		}
	}
}

// accepted verifies that an API server accepts an object with strict validation.
func accepted(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if testing.Short() {
		return
	}
	api, err := client.New(clustertest.Shared(t).Admin(), client.Options{})
	must(t, err)
	o = o.DeepCopy()
	o.SetNamespace("default") // which exists
	must(t, client.WithFieldValidation(api, "Strict").Create(context.Background(), o, client.DryRunAll))
}
