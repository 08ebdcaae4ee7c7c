// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// database is a vulnerability database with one entry, for strings.Repeat.
var database = map[string]string{
	"/index/db":      `{"modified":"2026-01-01T00:00:00Z"}`,
	"/index/modules": `[{"path":"stdlib","vulns":[{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]}]`,
	"/ID/GO-2026-0001": `{"schema_version":"1.3.1","id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z","published":"2026-01-01T00:00:00Z",
		"details":"An example.","database_specific":{"url":"https://example.com/GO-2026-0001"},"affected":[{"package":{"name":"stdlib","ecosystem":"Go"},
		"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
		"ecosystem_specific":{"imports":[{"path":"strings","symbols":["Repeat"]}]}}]}`,
}

// serve serves a database like https://vuln.go.dev, compressed and uncompressed.
func serve(t *testing.T, database map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, compressed := strings.CutSuffix(r.URL.Path, ".gz")
		text, ok := database[strings.TrimSuffix(path, ".json")]
		switch {
		case !ok:
			http.NotFound(w, r)
		case compressed:
			zipped := gzip.NewWriter(w)
			_, err := zipped.Write([]byte(text))
			if err = errors.Join(err, zipped.Close()); err != nil {
				t.Error(err)
			}
		default:
			_, _ = w.Write([]byte(text))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// source returns the directory of a module with one program.
func source(t *testing.T, body string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":          "module example.com/x\n\ngo 1.26\n",
		"cmd/x/main.go":   "package main\n\nimport \"strings\"\n\nfunc main() { println(" + body + ") }\n",
		"other/unused.go": "package other\n\nimport \"strings\"\n\nvar Unused = strings.Repeat(\"x\", 2)\n",
	} {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestVulncheck(t *testing.T) {
	known := serve(t, database)
	gone := httptest.NewServer(nil)
	gone.Close()
	calls, other := `strings.Repeat("x", 2)`, `strings.ToUpper("x")`
	for name, test := range map[string]struct {
		database, body string
		release        bool
		output, fails  string
	}{
		"a program that calls it":         {database: known, body: calls, output: "GO-2026-0001", fails: "vulnerabilities"},
		"in a release":                    {database: known, body: calls, release: true, output: "GO-2026-0001", fails: "vulnerabilities"},
		"a program that does not call it": {database: known, body: other, release: true, output: "No vulnerabilities found"},
		"no database":                     {database: gone.URL, body: calls, output: "NOTHING WAS CHECKED"},
		"no database, in a release":       {database: gone.URL, body: other, release: true, fails: "reaching the vulnerability database"},
		"another server":                  {database: serve(t, nil), body: calls, output: "404"},
		"another server, in a release":    {database: serve(t, nil), body: other, release: true, fails: "404"},
		"an incomplete database":          {database: serve(t, map[string]string{"/index/db": `{}`}), body: other, fails: "checking"},
		"a program that does not compile": {database: known, body: "nothing", fails: "checking"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := (&options{source: source(t, test.body), database: test.database, release: test.release, out: &out}).run(t.Context())
			if !strings.Contains(out.String(), test.output) {
				t.Errorf("output %q, want %q", &out, test.output)
			}
			if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("error %v, want %q", err, test.fails)
			}
		})
	}
}
