// SPDX-License-Identifier: Apache-2.0

package install

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// flowPrecedence gives the FlowSchema precedence over those for all ServiceAccounts, but
// not over those of Kubernetes' own components.
const flowPrecedence = 800

// flow returns a FlowSchema that assigns the renewals of nodegate's lease to the priority
// level of Kubernetes' own controllers. Outside of kube-system, they would otherwise share a
// queue with nodegate's patches, and the leader could lose its lease during a burst of
// openings.
func (o renderer) flow() object {
	return &flowcontrolv1.FlowSchema{
		TypeMeta:   typeMeta(flowcontrolv1.SchemeGroupVersion.String(), "FlowSchema"),
		ObjectMeta: metav1.ObjectMeta{Name: "nodegate-leases"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "leader-election"},
			MatchingPrecedence:         flowPrecedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{
					Kind:           flowcontrolv1.SubjectKindServiceAccount,
					ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: o.Namespace, Name: o.ServiceAccount},
				}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
					Namespaces: []string{o.Namespace}, Verbs: []string{"get", "create", "update", "watch"},
				}},
			}},
		},
	}
}
