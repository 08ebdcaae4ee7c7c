// SPDX-License-Identifier: Apache-2.0

package components

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// SourceDir returns the directory with the source of the project that the component is built
// from, which includes its manifests. It is in Go's module cache.
func SourceDir(ctx context.Context, c Component) (string, error) {
	m, err := readModule(c.moduleFile(DefaultVersion()))
	if err != nil {
		return "", err
	}
	path := projects[m.project] + "@" + m.version
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	command.Dir = os.TempDir() // in no module
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOTOOLCHAIN=auto")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w: %s", path, err, bytes.TrimSpace(append(output, stderr.Bytes()...)))
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(output, &downloaded); err != nil {
		return "", fmt.Errorf("downloading %s: parsing the go command's output: %w", path, err)
	}
	return downloaded.Dir, nil
}
