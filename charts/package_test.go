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

// dist runs 'make dist', and returns its directory and the packaged chart.
func dist(t *testing.T) (dir string, packed []byte) {
	t.Helper()
	dir = t.TempDir()
	if output, err := exec.Command("make", "-C", "..", "dist", "DIST="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	files, err := os.ReadDir(dir)
	must(t, err)
	charts, err := filepath.Glob(dir + "/nodegate-*.tgz")
	must(t, err)
	if len(files) != 3 || len(charts) != 1 {
		t.Fatalf("'make dist' creates %q, with the packages %q", files, charts)
	}
	packed, err = os.ReadFile(charts[0])
	must(t, err)
	return dir, packed
}

// The package of a commit is reproducible: it contains only the time of the commit, and no
// user name.
func TestChartPackageIsReproducible(t *testing.T) {
	t.Parallel()
	_, first := dist(t)
	_, second := dist(t)
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
		t.Errorf("the package contains the time of compression, %s", zipped.ModTime)
	}
	seen := 0
	for files := tar.NewReader(zipped); ; seen++ {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if !header.ModTime.Equal(committed) || header.Uname != "" || header.Uid != 0 {
			t.Errorf("%s has the time %s and the owner %q (%d); the commit has the time %s", header.Name, header.ModTime, header.Uname, header.Uid, committed)
		}
	}
	if seen < 15 {
		t.Errorf("only %d files were packed", seen)
	}
}
