// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gatefile"
	"github.com/nodegate/nodegate/internal/printer"
)

// files holds the manifests that the flags -f and -R specify, as in kubectl.
type files struct {
	names     []string
	recursive bool
}

func (f *files) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.names, "filename", "f", nil, "a file, a directory, or - for standard input; may be repeated")
	flags.BoolVarP(&f.recursive, "recursive", "R", false, "also read subdirectories")
}

// gates returns the gates in the files. Objects of other kinds are ignored. A gate
// that occurs twice is an error.
func (f *files) gates(stdin io.Reader) ([]v1alpha1.NodeGate, error) {
	var all []v1alpha1.NodeGate
	var errs []error
	from := make(map[string]string)
	take := func(name string, content []byte) {
		found, err := gatefile.Declared(name, content)
		errs = append(errs, err)
		for _, g := range found {
			if first, taken := from[g.Name]; taken {
				errs = append(errs, fmt.Errorf("%s: gate %s is already declared in %s", name, g.Name, first))
				continue
			}
			from[g.Name] = name
			all = append(all, *g)
		}
	}
	for _, name := range f.names {
		if err := f.read(name, stdin, take); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, f.nothingFound()
	}
	return all, nil
}

// isManifest reports whether a file of this name is read as a manifest if it is in a directory.
func isManifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// standardInput is how messages call what the name - specifies.
const standardInput = "standard input"

// nothingFound returns the error that the files contain no gate.
func (f *files) nothingFound() error {
	var names []string
	hint := ""
	for _, name := range f.names {
		if name == "-" {
			names = append(names, standardInput)
			continue
		}
		names = append(names, name)
		if info, err := os.Stat(name); err == nil && info.IsDir() && !f.recursive {
			hint = "; subdirectories are only read with -R"
		}
	}
	return fmt.Errorf("no NodeGate found in %s%s", printer.Enumerate(names, "or"), hint)
}

// read passes the content of a file to take, or that of every file in a directory
// that kubectl would read.
func (f *files) read(name string, stdin io.Reader, take func(string, []byte)) error {
	if name == "-" {
		content, err := io.ReadAll(stdin)
		if err != nil {
			return fmt.Errorf("reading standard input: %w", err)
		}
		take(standardInput, content)
		return nil
	}
	return filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("reading manifests: %w", err)
		case entry.IsDir() && path != name && !f.recursive:
			return fs.SkipDir
		case entry.IsDir(), path != name && !isManifest(path):
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading manifests: %w", err)
		}
		take(path, content)
		return nil
	})
}
