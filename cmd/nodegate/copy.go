// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// copyName is the name of the copy. The chart starts it.
const copyName = "nodegate"

func newCopyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "copy DIR",
		Short: "Copy this program into a directory",
		Long: "Copy this program into a directory, as the file nodegate. The program is static, so the copy runs in every container\n" +
			"in which the directory is mounted. The chart uses this to pull images of which no program may be started: the\n" +
			"container of each image runs 'nodegate --version' from the directory.",
		Example: "  nodegate copy /warm-up",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := copySelf(args[0]); err != nil {
				return fmt.Errorf("copying the program: %w", err)
			}
			return nil
		},
	}
}

// copySelf copies this program into a directory. The copy appears as a whole, also if an earlier
// attempt was interrupted.
func copySelf(dir string) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	self, err := os.Open(path)
	if err != nil {
		return err
	}
	defer self.Close()
	temporary, err := os.CreateTemp(dir, copyName)
	if err != nil {
		return err
	}
	_, err = io.Copy(temporary, self)
	if err = errors.Join(err, temporary.Chmod(0o755), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), filepath.Join(dir, copyName))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
