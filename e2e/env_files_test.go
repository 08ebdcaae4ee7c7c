// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
	"github.com/nodegate/nodegate/internal/gatefile"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

// newEnvWithoutCRD returns a separate cluster with nodegate installed, but without its CRD.
func newEnvWithoutCRD(t *testing.T) *env {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	e := newOwnCluster(t, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
	options := installation
	options.WithoutCRD = true
	e.must(e.applyManifests(t.Context(), options))
	e.must(e.addDaemonNamespace(t.Context()))
	return e
}

// gateFiles is a directory of gates like a ConfigMap volume: its files are links into a
// directory of the current version, so that one rename replaces all of them.
type gateFiles struct {
	*env
	path     string
	versions int
}

func (e *env) gateFiles() *gateFiles {
	e.Helper()
	f := &gateFiles{env: e, path: filepath.Join(e.TempDir(), "gates")}
	e.must(os.Mkdir(f.path, 0o700))
	return f
}

// replace replaces all files with these files.
func (f *gateFiles) replace(files map[string]string) {
	f.Helper()
	f.versions++
	version := fmt.Sprintf("..v%d", f.versions)
	f.must(os.Mkdir(filepath.Join(f.path, version), 0o700))
	for name, content := range files {
		f.must(os.WriteFile(filepath.Join(f.path, version, name), []byte(content), 0o600))
		_ = os.Symlink(filepath.Join("..data", name), filepath.Join(f.path, name)) // it may exist
	}
	f.must(os.Symlink(version, filepath.Join(f.path, "..data_tmp")))
	f.must(os.Rename(filepath.Join(f.path, "..data_tmp"), filepath.Join(f.path, "..data")))
	links, err := filepath.Glob(filepath.Join(f.path, "*.yaml"))
	f.must(err)
	for _, link := range links {
		if _, present := files[filepath.Base(link)]; !present {
			f.must(os.Remove(link))
		}
	}
}

// declares replaces all files with one file for each of these gates.
func (f *gateFiles) declares(gates ...*v1alpha1.NodeGate) {
	f.Helper()
	files := make(map[string]string)
	for _, ng := range gates {
		files[ng.Name+".yaml"] = f.asYAML(ng)
	}
	f.replace(files)
}

// asYAML returns a gate as YAML, as written by a user.
func (f *gateFiles) asYAML(ng *v1alpha1.NodeGate) string {
	f.Helper()
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeGate",
		"metadata": map[string]any{"name": ng.Name}, "spec": ng.Spec,
	})
	f.must(err)
	return string(text)
}

// startController runs a controller that reads its gates from the directory and has separate
// metrics.
func (f *gateFiles) startController() (metrics *prometheus.Registry, stop func()) {
	f.Helper()
	metrics = prometheus.NewRegistry()
	stop = f.runController(func(p *controller.Process) {
		p.Registerer, p.Gates = metrics, gatefile.New(f.path, f.logger())
	})
	return metrics, stop
}

// startsWithoutGates waits until a controller whose source of gates is not complete has
// stopped waiting for it, which takes half a minute, and has reconciled the nodes, one of
// which has the record of an unknown gate.
func (e *env) startsWithoutGates(metrics prometheus.Gatherer) {
	e.Helper()
	e.shows(metrics, "nodegate_unknown_gates", 1)
}
