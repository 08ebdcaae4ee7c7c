// SPDX-License-Identifier: Apache-2.0

// Package charts_test renders, installs and upgrades the chart with Helm.
package charts_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/internal/testbed"
)

const (
	chart     = "nodegate"
	namespace = "nodegate-system"
)

// program is the path of Helm, which is built from its module.
var program = sync.OnceValues(func() (string, error) {
	output, err := exec.Command("go", "tool", "-modfile=../hack/tools/helm/go.mod", "-n", "helm").CombinedOutput()
	if err != nil {
		return "", errors.New(string(output))
	}
	return strings.TrimSpace(string(output)), nil
})

// dependOnChart opens the files of the chart, so that the go command runs a cached test
// again when the chart changes.
var dependOnChart = sync.OnceValue(func() error {
	return filepath.WalkDir(chart, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
})

// tester is a test or one run of a property test.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// helm runs Helm with values, as JSON. The error is Helm's message, without its prefix.
func helm(t tester, values map[string]any, args ...string) (string, error) {
	t.Helper()
	path, err := program()
	if err = errors.Join(err, dependOnChart()); err != nil {
		t.Fatalf("building Helm: %v", err)
	}
	command := exec.Command(path, args...)
	if values != nil {
		text, err := yaml.Marshal(values)
		must(t, err)
		command.Args = append(command.Args, "--values=-")
		command.Stdin = bytes.NewReader(text)
	}
	home := filepath.Join(os.TempDir(), "nodegate-helm") // not the user's
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "HELM_DRIVER=secret",
		// An empty cache makes Helm discover the kinds each time. Otherwise, it caches the
		// kinds of an address for hours.
		"KUBECACHEDIR="+os.DevNull)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), errors.New(strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// rendered is the output of 'helm template' for the chart.
func rendered(t tester, values map[string]any, args ...string) []*unstructured.Unstructured {
	t.Helper()
	if values == nil {
		values = map[string]any{}
	}
	return printed(t, values, append([]string{"template", "nodegate", chart, "--namespace", namespace}, args...)...)
}

// printed returns the objects that Helm prints.
func printed(t tester, values map[string]any, args ...string) []*unstructured.Unstructured {
	t.Helper()
	output, err := helm(t, values, args...)
	must(t, err)
	checkKeys(t, output)
	objects, err := testbed.ParseObjects([]byte(output))
	must(t, err)
	return objects
}

// checkKeys fails the test if a map in a YAML stream contains a key twice. Helm accepts that,
// and kustomize rejects it.
func checkKeys(t tester, stream string) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(stream)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		if err := yaml.UnmarshalStrict(document, &object{}); err != nil {
			source, _, _ := strings.Cut(string(document), "\n") // Helm names the template there
			t.Fatalf("%s: %v", source, err)
		}
	}
}

// key identifies an object.
func key(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
}

// find returns the object with a key.
func find(t tester, objects []*unstructured.Unstructured, want string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range objects {
		if key(object) == want {
			return object
		}
	}
	t.Fatalf("there is no %s", want)
	return nil
}

// decoded returns the object with a key as its Go type.
func decoded[T any](t tester, objects []*unstructured.Unstructured, want string) *T {
	t.Helper()
	o := new(T)
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(find(t, objects, want).Object, o))
	return o
}

// argsOf returns nodegate's arguments with a prefix.
func argsOf(d *appsv1.Deployment, prefix string) (args []string) {
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, prefix) {
			args = append(args, arg)
		}
	}
	return args
}
