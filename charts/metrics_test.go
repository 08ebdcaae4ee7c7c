// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The ServiceMonitor matches the port and scheme of the Deployment.
func TestMetricsPort(t *testing.T) {
	t.Parallel()
	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	for name, test := range map[string]struct {
		values object
		args   []string // about the metrics port, without its address
		mounts []string
		want   object // of the endpoint, without its port
	}{
		"secure by default": {
			object{}, nil, nil,
			object{"scheme": "https", "bearerTokenFile": token, "tlsConfig": object{"insecureSkipVerify": true}},
		},
		"existing certificate": {
			object{"certificateSecret": "mine"}, []string{"--metrics-certificate-dir=/etc/nodegate/metrics"}, []string{"mine"},
			object{"scheme": "https", "bearerTokenFile": token, "tlsConfig": object{
				"serverName": "nodegate-metrics.nodegate-system.svc", "ca": object{"secret": object{"name": "mine", "key": "ca.crt"}},
			}},
		},
		"without authorization": {object{"secure": false, "certificateSecret": "mine"}, []string{"--metrics-secure=false"}, nil, object{}},
	} {
		t.Run(name, func(t *testing.T) {
			test.values["serviceMonitor"] = object{"enabled": true}
			objects := rendered(t, object{"metrics": test.values}, "--kube-version", "1.37")
			endpoints, _, err := unstructured.NestedSlice(find(t, objects, "ServiceMonitor nodegate-system/nodegate").Object, "spec", "endpoints")
			must(t, err)
			test.want["port"] = "metrics"
			if len(endpoints) != 1 || !reflect.DeepEqual(endpoints[0], any(test.want)) {
				t.Errorf("Prometheus scrapes %v, want %v", endpoints, test.want)
			}
			d := deployment(t, objects)
			pod := d.Spec.Template.Spec
			args := slices.DeleteFunc(argsOf(d, "--metrics-"), func(arg string) bool { return strings.HasPrefix(arg, "--metrics-bind-address=") })
			var mounts []string
			for i, m := range pod.Containers[0].VolumeMounts {
				if m.MountPath == "/etc/nodegate/metrics" && m.ReadOnly && m.Name == pod.Volumes[i].Name {
					mounts = append(mounts, pod.Volumes[i].Secret.SecretName)
				}
			}
			if !slices.Equal(args, test.args) || !slices.Equal(mounts, test.mounts) {
				t.Errorf("arguments %q and Secrets %q, want %q and %q", args, mounts, test.args, test.mounts)
			}
		})
	}
}

func TestMetricsReaders(t *testing.T) {
	t.Parallel()
	objects := rendered(t, object{"metrics": object{"readers": []object{{"namespace": "monitoring", "name": "prometheus-k8s"}}}})
	binding := find(t, objects, "ClusterRoleBinding nodegate-metrics-readers").Object
	role, _, err := unstructured.NestedString(binding, "roleRef", "name")
	must(t, err)
	want := []any{object{"kind": "ServiceAccount", "namespace": "monitoring", "name": "prometheus-k8s"}}
	if role != "nodegate-metrics-reader" || !reflect.DeepEqual(binding["subjects"], any(want)) {
		t.Errorf("%s is bound to %v, want %v", role, binding["subjects"], want)
	}
	find(t, objects, "ClusterRole "+role)
}
