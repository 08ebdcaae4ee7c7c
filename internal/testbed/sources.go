// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// sourcesOf is a template for 'go list'. It prints the directory, the compiled files and the
// embedded files of a package of this module.
const sourcesOf = `{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{.Module.GoMod}}
{{$dir}}
{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .CgoFiles}}{{$dir}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}
{{end}}{{end}}{{end}}`

// DependOnSources makes the result of a test depend on the sources of programs that the test builds
// and starts. The go command's cache of test results knows the packages that a test imports, and
// the files of this module that it has accessed, but not what its child processes have read.
func DependOnSources(ctx context.Context, packages ...string) error {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-f", sourcesOf}, packages...)...)
	var stderr bytes.Buffer
	list.Stderr = &stderr
	files, err := list.Output()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("listing sources of %s: %w:\n%s", strings.Join(packages, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	var errs []error
	for file := range strings.Lines(string(files)) {
		if file = strings.TrimSpace(file); file != "" {
			_, err := os.Stat(file) // go test records this
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
