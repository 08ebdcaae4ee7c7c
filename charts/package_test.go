// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// packed returns the chart as in a release.
func packed(t *testing.T) []byte {
	t.Helper()
	dist := t.TempDir()
	if output, err := exec.Command("make", "-C", "..", "dist", "DIST="+dist).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	paths, err := filepath.Glob(dist + "/*")
	must(t, err)
	hidden, err := filepath.Glob(dist + "/.*")
	must(t, err)
	if len(paths) != 3 || len(hidden) > 0 {
		t.Errorf("'make dist' leaves %q and %q", paths, hidden)
	}
	chart, err := filepath.Glob(dist + "/nodegate-*.tgz")
	must(t, err)
	if len(chart) != 1 {
		t.Fatalf("packages: %q", chart)
	}
	content, err := os.ReadFile(chart[0])
	must(t, err)
	return content
}

// The package of a commit is reproducible: it contains only the time of the commit, and no
// user name.
func TestChartPackageIsReproducible(t *testing.T) {
	t.Parallel()
	first, second := packed(t), packed(t)
	if !bytes.Equal(first, second) {
		t.Error("two packages of one commit differ")
	}
	output, err := exec.Command("git", "log", "-1", "--format=%cI").Output()
	must(t, err)
	committed, err := time.Parse(time.RFC3339, strings.TrimSpace(string(output)))
	must(t, err)
	zipped, err := gzip.NewReader(bytes.NewReader(first))
	must(t, err)
	if !zipped.ModTime.IsZero() {
		t.Errorf("it was compressed at %s", zipped.ModTime)
	}
	seen := 0
	for files := tar.NewReader(zipped); ; seen++ {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if !header.ModTime.Equal(committed) || header.Uname != "" || header.Uid != 0 {
			t.Errorf("%s is of %s and belongs to %q (%d); the commit is of %s", header.Name, header.ModTime, header.Uname, header.Uid, committed)
		}
	}
	if seen < 15 {
		t.Errorf("only %d files were packed", seen)
	}
}
