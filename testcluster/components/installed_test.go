// SPDX-License-Identifier: Apache-2.0

package components

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodegate/nodegate/testcluster/progress"
)

// link links a program of this machine, if it exists, into a directory.
func link(t *testing.T, program, dir string) {
	t.Helper()
	file, err := exec.LookPath(program)
	if err != nil {
		return
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(dir, program)); err != nil {
		t.Fatal(err)
	}
}

// The programs of a machine, by directory, with the version that each prints. An
// empty version means exit status 1.
type programs map[Component]string

func (p programs) install(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for c, answer := range p {
		script := "#!/bin/sh\nexit 1\n"
		if answer != "" {
			script = "#!/bin/sh\ncase \"$*\" in --version | 'version --client') echo '" + answer + "';; *) exit 2;; esac\n"
		}
		if err := os.WriteFile(filepath.Join(dir, string(c)), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestInstalled(t *testing.T) {
	newest := "Kubernetes v" + Versions()[0] + ".9"
	older := "Kubernetes v" + Versions()[len(Versions())-1] + ".9"
	for name, test := range map[string]struct {
		version      string
		assets, path programs
		want         string // where the programs come from: component=where
		progress     string // part of what is written
	}{
		"nothing": {},
		"assets of the version": {
			assets: programs{APIServer: newest, Etcd: "etcd Version: 3.6.1"},
			want:   "etcd=assets kube-apiserver=assets", progress: "using ",
		},
		"the PATH": {
			path: programs{APIServer: newest, Scheduler: newest, KWOK: "kwok version v0.8.0 go1.26.0 (linux/amd64)"},
			want: "kube-apiserver=path kube-scheduler=path kwok=path",
		},
		"assets come first": {
			assets: programs{APIServer: newest}, path: programs{APIServer: newest},
			want: "kube-apiserver=assets",
		},
		"assets of another version do not": {
			assets: programs{APIServer: older}, path: programs{APIServer: newest},
			want: "kube-apiserver=path", progress: "want " + Versions()[0],
		},
		"an older version that is requested": {
			version: Versions()[len(Versions())-1],
			assets:  programs{APIServer: newest}, path: programs{APIServer: older},
			want: "kube-apiserver=path",
		},
		"an etcd that is too old": {
			path: programs{Etcd: "etcd Version: 3.4.30"}, progress: "its version is 3.4, want 3.5 to 3.7",
		},
		"a kubectl within the version skew": {
			path: programs{Kubectl: "Client Version: v1.36.0"}, want: "kubectl=path",
		},
		"a kubectl outside of it": {
			path: programs{Kubectl: "Client Version: v1.32.4"}, progress: "its version is 1.32, want 1.36 to 1.38",
		},
		"a program that does not run": {
			path: programs{Etcd: ""}, progress: "reading its version: exit status 1",
		},
		"a program without a version": {
			path: programs{Etcd: "hello"}, progress: "its output contains none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dirs := map[string]string{"path": test.path.install(t), "assets": test.assets.install(t)}
			t.Setenv("PATH", dirs["path"])
			t.Setenv(assetsVariable, dirs["assets"])
			var written bytes.Buffer
			got := whereFrom(t, dirs, Options{KubernetesVersion: test.version, Components: ControlPlane(), Progress: &written})
			if got != test.want {
				t.Errorf("installed are %q, want %q", got, test.want)
			}
			if !strings.Contains(written.String(), test.progress) {
				t.Errorf("progress is %q, want %q", written.String(), test.progress)
			}
		})
	}
}

// whereFrom returns which components are installed in which directory.
func whereFrom(t *testing.T, dirs map[string]string, opts Options) string {
	t.Helper()
	if opts.KubernetesVersion == "" {
		opts.KubernetesVersion = Versions()[0]
	}
	paths, err := installed(t.Context(), &opts, progress.New(opts.Progress))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, c := range ControlPlane() {
		for name, dir := range dirs {
			if paths[c] == filepath.Join(dir, string(c)) {
				found = append(found, string(c)+"="+name)
			}
		}
	}
	return strings.Join(found, " ")
}

func TestMissingAssetsDirectory(t *testing.T) {
	t.Setenv(assetsVariable, filepath.Join(t.TempDir(), "nowhere"))
	_, err := Build(t.Context(), Options{Components: []Component{Etcd}})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), assetsVariable) {
		t.Errorf("got %v, want an error about $%s", err, assetsVariable)
	}
}
