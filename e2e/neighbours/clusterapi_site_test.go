// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/components"
)

// capiWorkloadUser is the user with which Cluster API accesses the workload cluster.
const capiWorkloadUser = "system:serviceaccount:kube-system:capi-workload"

// clusterAPI is a site on which Cluster API's core provider runs. The workload cluster is also the
// management cluster. The test plays the infrastructure and control plane providers.
type clusterAPI struct {
	*site
	program *program
}

// newClusterAPI returns a site on which Cluster API runs, with a Cluster that has no Machines.
func newClusterAPI(t *testing.T) *clusterAPI {
	t.Helper()
	s := &clusterAPI{site: newSite(t, components.ClusterAPI)}
	source, err := components.SourceDir(t.Context(), components.ClusterAPI)
	s.must(err)
	// Without kustomize's patches, they have no conversion webhook.
	kinds, err := filepath.Glob(filepath.Join(source, "core/config/crd/bases/*.yaml"))
	s.must(err)
	s.applyKinds(append(kinds, s.playedKinds()...))
	role, err := os.ReadFile(filepath.Join(source, "core/config/rbac/role.yaml"))
	s.must(err)
	s.apply(string(role))
	s.apply(capiAccounts)
	s.program = s.startClusterAPI()
	kubeconfig, err := os.ReadFile(s.kubeconfig("kube-system", "capi-workload"))
	s.must(err)
	s.apply(fmt.Sprintf(capiSecret, base64.StdEncoding.EncodeToString(kubeconfig)))
	s.Cleanup(s.awaitDeletion)
	s.apply(capiObjects)
	return s
}

// startClusterAPI starts Cluster API's manager. No webhook is registered, so any certificate
// suffices for its server.
func (s *clusterAPI) startClusterAPI() *program {
	s.Helper()
	_, webhook := s.address()
	health, _ := s.address()
	diagnostics, _ := s.address()
	return s.start([]string{"KUBECONFIG=" + s.kubeconfig("kube-system", "capi-manager")},
		"--webhook-port="+webhook, "--webhook-cert-dir="+filepath.Join(s.cluster.Dir(), "pki"),
		"--webhook-cert-name=serving.crt", "--webhook-key-name=serving.key",
		"--health-addr="+health, "--diagnostics-address="+diagnostics, "--insecure-diagnostics")
}

// playedKinds returns files with the kinds that providers would define. The label declares the
// version of Cluster API's contract with providers.
func (s *clusterAPI) playedKinds() (files []string) {
	s.Helper()
	for kind, group := range map[string]string{
		"PlayedCluster": "infrastructure", "PlayedMachine": "infrastructure", "PlayedMachineTemplate": "infrastructure",
		"PlayedControlPlane": "controlplane",
	} {
		file := filepath.Join(s.TempDir(), kind+".yaml")
		s.must(os.WriteFile(file, fmt.Appendf(nil, playedKind, kind, strings.ToLower(kind), group), 0o600))
		files = append(files, file)
	}
	return files
}

// awaitDeletion waits until the Cluster is deleted, which Cluster API has to do.
func (s *clusterAPI) awaitDeletion() {
	if err := await.Until(context.Background(), "the Cluster to be deleted", func(ctx context.Context) error {
		err := s.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "workload"}, capiObject("cluster.x-k8s.io", "Cluster"))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it exists"), err)
	}); err != nil {
		s.Error(err)
	}
}

// capiObject returns an empty object of a kind of Cluster API or of a provider.
func capiObject(group, kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(group + "/v1beta2")
	object.SetKind(kind)
	object.SetNamespace("default")
	return object
}

// machine contains the fields of a Machine that tests read.
type machine struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// machines returns all Machines by name.
func (s *clusterAPI) machines(ctx context.Context) map[string]machine {
	s.Helper()
	var list unstructured.UnstructuredList
	list.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	list.SetKind("MachineList")
	s.must(s.client.List(ctx, &list))
	all := make(map[string]machine)
	for _, item := range list.Items {
		var m machine
		s.must(runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &m))
		all[m.Metadata.Name] = m
	}
	return all
}

// awaitMachine waits until a Machine meets a condition, and returns it.
func (s *clusterAPI) awaitMachine(what, name string, check func(*machine) error) (found machine) {
	s.Helper()
	s.eventually(fmt.Sprintf("Machine %s to be %s", name, what), func(ctx context.Context) error {
		var exists bool
		if found, exists = s.machines(ctx)[name]; !exists {
			return errors.New("it does not exist")
		}
		return check(&found)
	})
	return found
}

// awaitNewMachines waits until there are n Machines besides those in known, and returns their names.
func (s *clusterAPI) awaitNewMachines(n int, known map[string]machine) (names []string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d new Machines", n), func(ctx context.Context) error {
		names = nil
		for name := range s.machines(ctx) {
			if _, exists := known[name]; !exists {
				names = append(names, name)
			}
		}
		if len(names) != n {
			return fmt.Errorf("there are %d", len(names))
		}
		return nil
	})
	return names
}

// provision plays the infrastructure provider: it creates the Node of a Machine, with the
// Machine's name, and reports its provider ID.
func (s *clusterAPI) provision(machine, gate string, labels map[string]string) {
	s.Helper()
	id := "played://" + machine
	all := map[string]string{siteLabel: gate}
	for key, value := range labels {
		all[key] = value
	}
	s.createNodeWith(machine, all, id)
	played := capiObject("infrastructure.cluster.x-k8s.io", "PlayedMachine")
	played.SetName(machine)
	s.must(s.client.Patch(s.Context(), played, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"providerID":%q},"status":{"initialization":{"provisioned":true}}}`, id))))
}

// holdDeletion makes Cluster API wait before it drains the node of a deleted Machine, or no longer
// wait.
func (s *clusterAPI) holdDeletion(machine string, hold bool) {
	s.Helper()
	value := "null"
	if hold {
		value = `""`
	}
	object := capiObject("cluster.x-k8s.io", "Machine")
	object.SetName(machine)
	s.must(s.client.Patch(s.Context(), object, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{"pre-drain.delete.hook.machine.cluster.x-k8s.io/test":%s}}}`, value))))
}

const playedKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[2]ss.%[3]s.cluster.x-k8s.io
  labels: {cluster.x-k8s.io/v1beta2: v1beta2}
spec:
  group: %[3]s.cluster.x-k8s.io
  scope: Namespaced
  names: {kind: %[1]s, plural: %[2]ss}
  versions:
  - name: v1beta2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const capiAccounts = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: capi-manager, namespace: kube-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: capi-workload, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: capi-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: manager-role}
subjects: [{kind: ServiceAccount, name: capi-manager, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: capi-workload}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: capi-workload, namespace: kube-system}]
`

const capiSecret = `
apiVersion: v1
kind: Secret
metadata: {name: workload-kubeconfig, namespace: default, labels: {cluster.x-k8s.io/cluster-name: workload}}
type: cluster.x-k8s.io/secret
data: {value: %s}
`

const capiObjects = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: PlayedCluster
metadata: {name: workload, namespace: default}
status: {initialization: {provisioned: true}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: PlayedControlPlane
metadata: {name: workload, namespace: default}
status: {initialization: {controlPlaneInitialized: true}, externalManagedControlPlane: true}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: PlayedMachineTemplate
metadata: {name: workload, namespace: default}
spec: {template: {spec: {}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: workload, namespace: default}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: PlayedCluster, name: workload}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: PlayedControlPlane, name: workload}
`
