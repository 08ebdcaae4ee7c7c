// SPDX-License-Identifier: Apache-2.0

// Package charts_test renders, installs and upgrades the chart with Helm.
package charts_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		if err != nil {
			t.Fatalf("writing values: %v", err)
		}
		command.Args = append(command.Args, "--values=-")
		command.Stdin = bytes.NewReader(text)
	}
	home := filepath.Join(os.TempDir(), "nodegate-helm") // nothing of whoever runs the test
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
	args = append([]string{"template", "nodegate", chart, "--namespace", namespace}, args...)
	output, err := helm(t, values, args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	objects, err := testbed.ParseObjects([]byte(output))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return objects
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
