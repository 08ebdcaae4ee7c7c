// SPDX-License-Identifier: Apache-2.0

// Command vulncheck runs govulncheck on nodegate's programs: it fails if they call
// code with a known vulnerability. If the vulnerability database is unreachable, it
// reports that nothing was checked, and fails only for a release.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"golang.org/x/vuln/scan"
)

// patience is the timeout for reaching the database.
const patience = 20 * time.Second

type options struct {
	source, database string
	release          bool
	out              io.Writer
}

func main() {
	o := options{out: os.Stdout}
	flag.StringVar(&o.source, "source", ".", "the directory of the module to check; its programs are in cmd/")
	flag.StringVar(&o.database, "db", "https://vuln.go.dev", "the vulnerability database")
	flag.BoolVar(&o.release, "release", false, "fail if the database is unreachable")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context) error {
	if err := reach(ctx, o.database); err != nil {
		if o.release {
			return fmt.Errorf("a release must be checked for known vulnerabilities: %w", err)
		}
		fmt.Fprintf(o.out, "vulncheck: NOTHING WAS CHECKED: %v. With RELEASE=1, this is an error.\n", err)
		return nil
	}
	command := scan.Command(ctx, "-C", o.source, "-db", o.database, "./cmd/...")
	command.Stdout, command.Stderr = o.out, o.out
	err := command.Start()
	if err == nil {
		err = command.Wait()
	}
	if err != nil {
		return fmt.Errorf("checking for known vulnerabilities: %w", err)
	}
	return nil
}

// reach returns an error if the database is unreachable.
func reach(ctx context.Context, database string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, database+"/index/db.json", nil)
	if err != nil {
		return fmt.Errorf("reaching the vulnerability database: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("reaching the vulnerability database: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New("reaching the vulnerability database: " + database + " responded with " + response.Status)
	}
	return nil
}
