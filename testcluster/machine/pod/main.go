// SPDX-License-Identifier: Apache-2.0

// Command pod is what containers on test machines run.
//
//	pod                    waits for a signal
//	pod run FILE NAME      appends a line with the time and the name to a file, then waits
//	pod exists FILE        exits with status 0 if the file exists
//	pod await FILE         exits when the file exists
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "exists":
		if _, err := os.Stat(args[1]); err != nil {
			fail(err)
		}
		return
	case len(args) == 2 && args[0] == "await":
		for {
			if _, err := os.Stat(args[1]); err == nil {
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	case len(args) == 3 && args[0] == "run":
		if err := record(args[1], args[2]); err != nil {
			fail(err)
		}
	case len(args) > 0:
		fail(fmt.Errorf("unknown arguments: %q", args))
	}
	<-stop
}

// record appends a line to a file that containers share.
func record(file, name string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), name)
	return err
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "pod:", err)
	os.Exit(1)
}
