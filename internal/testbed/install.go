// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	programPackage = "github.com/nodegate/nodegate/cmd/nodegate"
	namespace      = "nodegate-system"
)

// An Installation is nodegate in a cluster.
type Installation struct {
	// Program is the path of the nodegate program.
	Program string
	// AllowedKeys are the taint keys that it may change.
	AllowedKeys []string
	// ServiceAccount is nodegate's ServiceAccount.
	ServiceAccount types.NamespacedName
}

// Username is nodegate's user name in the API server.
func (i *Installation) Username() string {
	return "system:serviceaccount:" + i.ServiceAccount.Namespace + ":" + i.ServiceAccount.Name
}

// BuildProgram builds nodegate from this source tree into a directory, and
// returns its path. It uses the go command's default flags, so that packages that
// nodegate-build has compiled are not compiled again. It has no time limit: call
// it before anything that has one. A test that calls it depends on nodegate's sources.
func BuildProgram(ctx context.Context, dir string) (string, error) {
	if err := DependOnSources(ctx, programPackage); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "nodegate")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, programPackage)
	output, err := build.CombinedOutput()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("building nodegate: %w:\n%s", err, bytes.TrimSpace(output))
	}
	return program, nil
}

// Install applies the output of 'nodegate manifests' with these taint keys, and other flags.
func Install(ctx context.Context, a *Applier, program string, allowedKeys []string, flags ...string) (*Installation, error) {
	i := &Installation{Program: program, AllowedKeys: allowedKeys}
	stream, err := i.manifests(ctx, flags)
	if err != nil {
		return nil, err
	}
	objects, err := ParseObjects(stream)
	if err != nil {
		return nil, fmt.Errorf("reading nodegate's manifests: %w", err)
	}
	for _, object := range objects {
		if object.GetKind() == "ServiceAccount" {
			i.ServiceAccount = types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
		}
	}
	if i.ServiceAccount.Name == "" {
		return nil, errors.New("reading nodegate's manifests: there is no ServiceAccount")
	}
	if err := a.Apply(ctx, objects...); err != nil {
		return nil, fmt.Errorf("installing nodegate: %w", err)
	}
	return i, nil
}

func (i *Installation) manifests(ctx context.Context, flags []string) ([]byte, error) {
	flags = append([]string{"manifests", "--namespace", namespace, "--allowed-taint-keys", strings.Join(i.AllowedKeys, ",")}, flags...)
	command := exec.CommandContext(ctx, i.Program, flags...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stream, err := command.Output()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("running nodegate manifests: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stream, nil
}
