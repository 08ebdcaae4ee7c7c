// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"
)

var yamlOnPage = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// The values on the pages are valid.
func TestValuesOnPages(t *testing.T) {
	t.Parallel()
	var known object
	readYAML(t, filepath.Join(chart, "values.yaml"), &known)
	for _, name := range []string{"nodeSelector", "affinity"} { // gates and pods have these, too
		delete(known, name)
	}
	seen := 0
	must(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(path)
		for _, block := range yamlOnPage.FindAllSubmatch(page, -1) {
			var values object
			if yaml.Unmarshal(block[1], &values) != nil || !anyOf(values, known) || values["apiVersion"] != nil {
				continue // not values of the chart
			}
			seen++
			if _, err := helm(t, values, "template", "nodegate", chart, "--kube-version", "1.37"); err != nil {
				t.Errorf("%s: %v\n%s", path, err, block[1])
			}
		}
		return err
	}))
	if seen == 0 {
		t.Error("no page has values")
	}
}

// anyOf reports whether one of these keys is a value of the chart.
func anyOf(values, known object) bool {
	for name := range values {
		if _, is := known[name]; is {
			return true
		}
	}
	return false
}
