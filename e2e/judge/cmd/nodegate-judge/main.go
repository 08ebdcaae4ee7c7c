// SPDX-License-Identifier: Apache-2.0

// Command nodegate-judge checks, from etcd and the audit log, whether nodegate kept
// its guarantees in a run. See docs/reliability.md.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/nodegate/nodegate/e2e/judge"
	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
	"github.com/nodegate/nodegate/testcluster/command"
)

// errVerdict is returned when a rule was violated or not checked.
var errVerdict = errors.New("the verdict is FAIL")

func main() {
	command.Main("nodegate-judge", func(ctx context.Context, _ []string) error { return run(ctx) })
}

func run(ctx context.Context) error {
	var (
		files credentials
		c     judge.Config
		etcd  = flag.String("etcd", "https://127.0.0.1:2379", "`URL` of an etcd with all revisions of the run")
		audit = flag.String("audit-log", "", "audit log `file` of the API server")
		from  = flag.Int64("from", 1, "first `revision` to judge")
		users = flag.String("operators", "", "comma-separated `users` that may write records and overrides")
	)
	flag.StringVar(&files.certificate, "etcd-cert", "", "`file` with the client certificate")
	flag.StringVar(&files.key, "etcd-key", "", "`file` with the key of the client certificate")
	flag.StringVar(&files.authority, "etcd-cacert", "", "`file` with the CA certificate of etcd")
	flag.StringVar(&c.Controller, "controller", "system:serviceaccount:nodegate-system:nodegate", "name of nodegate's `user`")
	flag.DurationVar(&c.Lag, "lag", judge.DefaultLag, "maximum age of the state on which a write may be based")
	flag.DurationVar(&c.Quiet, "quiet", judge.DefaultQuiet, "time without changes before the end that rule L requires")
	flag.Parse()
	if *audit == "" || flag.NArg() > 0 {
		return errors.New("--audit-log is required, and arguments are not allowed")
	}
	if *users != "" {
		c.Operators = strings.Split(*users, ",")
	}
	history, err := read(ctx, *etcd, files, *audit, *from)
	if err != nil {
		return err
	}
	verdict := judge.Judge(history, c)
	if _, err := verdict.WriteTo(os.Stdout); err != nil {
		return fmt.Errorf("writing the verdict: %w", err)
	}
	if !verdict.Pass() {
		return errVerdict
	}
	return nil
}

func read(ctx context.Context, etcd string, files credentials, audit string, from int64) (*revisions.History, error) {
	config := clientv3.Config{Context: ctx, Endpoints: []string{etcd}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}
	var err error
	if config.TLS, err = files.read(); err != nil {
		return nil, fmt.Errorf("reading etcd's credentials: %w", err)
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	defer client.Close()
	return recording.Read(ctx, client, audit, recording.Position{Revision: from})
}

// credentials are the files that an etcd client needs; all are empty without TLS.
type credentials struct{ certificate, key, authority string }

func (c credentials) read() (*tls.Config, error) {
	if c.certificate == "" {
		return nil, nil
	}
	certificate, err := tls.LoadX509KeyPair(c.certificate, c.key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(c.authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", c.authority)
	}
	return config, nil
}
