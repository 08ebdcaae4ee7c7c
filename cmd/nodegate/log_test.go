// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	stdlog "log"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// nodegate's own messages are not limited, in both formats.
func TestOwnLogIsNotLimited(t *testing.T) {
	for name, development := range map[string]bool{"JSON": false, "text": true} {
		var out bytes.Buffer
		log, _ := newLogs(&out, development)
		for range 500 {
			log.Info("gate opened", "gate", "cni", "node", "n1")
		}
		if lines := strings.Count(out.String(), "gate opened"); lines != 500 {
			t.Errorf("%s: %d lines, want 500", name, lines)
		}
	}
}

// Messages of libraries are limited, so that they cannot flood the log.
func TestLibrariesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		_, log := newLogs(&out, false)
		named := log.WithName("client").WithValues("part", "watch") // shares the limit
		for i, want := range []int{librariesBurst, librariesMax} {
			out.Reset()
			for range 250 {
				log.Info("again")
				named.Info("again")
			}
			if lines := strings.Count(out.String(), "again"); lines != want {
				t.Errorf("in second %d: %d of 500 lines were written, want %d", i, lines, want)
			}
			<-time.After(time.Second)
		}
	})
}

// Log lines of nodegate and of the libraries have the same format.
func TestLogFormat(t *testing.T) {
	anyTime := regexp.MustCompile(`"ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)"`)
	stack := regexp.MustCompile(`"stacktrace":"[^"]+"`)
	line := func(log logr.Logger, out *bytes.Buffer) string {
		out.Reset()
		log.V(1).Info("debug")
		log.WithName("part").Info("gate opened", "node", "n1", "closedSeconds", 1.5)
		log.Error(errors.New("bad"), "cannot", "node", "n1")
		return stack.ReplaceAllString(anyTime.ReplaceAllString(out.String(), "TIME"), "STACK")
	}
	var out bytes.Buffer
	own, libraries := newLogs(&out, false)
	a, b := line(own, &out), line(libraries, &out)
	if a != b || strings.Count(a, "TIME") != 2 || strings.Count(a, "STACK") != 1 {
		t.Errorf("nodegate writes\n%sbut the libraries write\n%s", a, b)
	}
}

// What Go's own libraries log has the same format. Errors of handshakes are discarded.
func TestStandardLog(t *testing.T) {
	defer stdlog.SetOutput(stdlog.Writer())
	defer stdlog.SetFlags(stdlog.Flags())
	var out bytes.Buffer
	_, libraries := newLogs(&out, false)
	redirectStandardLog(libraries)
	stdlog.Print("http: TLS handshake error from 10.0.0.1:1234: client sent an HTTP request to an HTTPS server")
	stdlog.Print("http: panic serving 10.0.0.1:1234: oh\ngoroutine 1:")
	if got := out.String(); strings.Count(got, "\n") != 1 || !json.Valid([]byte(got)) || !strings.Contains(got, `"msg":"http: panic serving 10.0.0.1:1234: oh\ngoroutine 1:"`) {
		t.Errorf("log %q, want one line in JSON about the panic", got)
	}
}

// BenchmarkLine measures logging one opening, including the write to a file.
func BenchmarkLine(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	for name, out := range map[string]io.Writer{"encoded": io.Discard, "written": null} {
		log, _ := newLogs(out, false)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				log.Info("gate opened", "gate", "cni", "node", "ip-10-0-0-1", "reason", "SignalsHold", "closedSeconds", 31.5)
			}
		})
	}
}
