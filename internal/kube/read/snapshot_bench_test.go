// SPDX-License-Identifier: Apache-2.0

package read

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
)

// BenchmarkSnapshots measures the client's cost of a snapshot of 5,000 nodes with 15,000
// pods. The API server's cost is excluded: responses are encoded beforehand.
func BenchmarkSnapshots(b *testing.B) {
	const nodes, queries = 5000, 3
	namespace := "kube-system"
	lists := map[string][]runtime.Object{"/api/v1/nodes": nil, "/api/v1/namespaces/" + namespace + "/pods": nil}
	var needs gate.Needs
	for q := range queries {
		needs.Pods = append(needs.Pods, gate.PodQuery{Namespace: namespace, Selector: fmt.Sprintf("app=agent-%d", q)})
	}
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		lists["/api/v1/nodes"] = append(lists["/api/v1/nodes"], kubetest.PlainNode(name))
		for q := range queries {
			p := kubetest.Pod(fmt.Sprintf("agent-%d-%04d", q, i), types.UID(fmt.Sprintf("uid-%d-%d", q, i)), name, true)
			p.Labels = map[string]string{"app": fmt.Sprintf("agent-%d", q)}
			path := "/api/v1/namespaces/" + namespace + "/pods?" + p.Labels["app"]
			lists[path] = append(lists[path], p)
		}
	}
	server := httptest.NewServer(serveLists(b, lists))
	defer server.Close()
	r, err := NewReader(&rest.Config{Host: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		all, errs, err := r.Snapshots(b.Context(), func(*gate.DaemonSets) gate.Needs { return needs })
		if err != nil || len(errs) > 0 || len(all) != nodes || len(all[7].Pods[needs.Pods[2]]) != 1 {
			b.Fatalf("%d nodes, %v, %v", len(all), errs, err)
		}
	}
}

// BenchmarkEveryPod measures the client's cost of reading 100,000 pods of 5,000 nodes for
// a report.
func BenchmarkEveryPod(b *testing.B) {
	const nodes, pods = 5000, 20
	lists := map[string][]runtime.Object{}
	for i := range nodes * pods {
		name := fmt.Sprintf("web-%06d", i)
		p := kubetest.Pod(name, types.UID("uid-"+name), fmt.Sprintf("node-%04d", i%nodes), true)
		p.Annotations = map[string]string{"example.com/a": strings.Repeat("x", 1000)} // a typical size
		for range 2 {
			env := make([]corev1.EnvVar, 20)
			for j := range env {
				env[j] = corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", j), Value: strings.Repeat("v", 40)}
			}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "c", Image: strings.Repeat("i", 80), Env: env})
		}
		lists["/api/v1/pods"] = append(lists["/api/v1/pods"], p)
	}
	server := httptest.NewServer(serveLists(b, lists))
	defer server.Close()
	r, err := NewReader(&rest.Config{Host: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		all, err := r.EveryPod(b.Context())
		if err != nil || len(all) != nodes || len(all["node-0007"].Pods) != pods {
			b.Fatalf("%d nodes, %v", len(all), err)
		}
	}
}

// serveLists serves lists in pages.
func serveLists(b *testing.B, lists map[string][]runtime.Object) http.Handler {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		b.Fatal("no protobuf")
	}
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
	page := func(items []runtime.Object, m metav1.ListMeta) []byte {
		var list runtime.Object
		switch items[0].(type) {
		case *corev1.Node:
			l := &corev1.NodeList{ListMeta: m}
			for _, o := range items {
				l.Items = append(l.Items, *o.(*corev1.Node))
			}
			list = l
		default:
			l := &corev1.PodList{ListMeta: m}
			for _, o := range items {
				l.Items = append(l.Items, *o.(*corev1.Pod))
			}
			list = l
		}
		raw, err := runtime.Encode(encoder, list)
		if err != nil {
			b.Fatal(err)
		}
		return raw
	}
	pages := make(map[string][]byte)
	for path, items := range lists {
		for from := 0; from < len(items); from += pageSize {
			m := metav1.ListMeta{ResourceVersion: "7"}
			to := min(from+pageSize, len(items))
			if to < len(items) {
				m.Continue = strconv.Itoa(to)
			}
			pages[path+"#"+strconv.Itoa(from)] = page(items[from:to], m)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		path, query := request.URL.Path, request.URL.Query()
		if selector := query.Get("labelSelector"); selector != "" {
			path += "?" + strings.TrimPrefix(selector, "app=")
		}
		from := query.Get("continue")
		if from == "" {
			from = "0"
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(pages[path+"#"+from])
	})
}
