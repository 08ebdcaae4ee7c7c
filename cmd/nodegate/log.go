// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	stdlog "log"
	"strings"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// librariesMax is how many messages of libraries are logged per second, so that they cannot
// flood the log, and librariesBurst how many at once.
const (
	librariesMax   = 10
	librariesBurst = 100
)

// newLogs returns nodegate's own logger, and the logger of the libraries. Both write to the
// same output: JSON, or text in development.
//
// nodegate's own messages are not limited, so that every opening of a gate on a node is
// logged, even in a burst of thousands. A line takes 2 µs. Events that can repeat endlessly,
// such as retried writes, are logged once in a row.
func newLogs(out io.Writer, development bool) (own, libraries logr.Logger) {
	if development {
		own = zap.New(zap.WriteTo(out), zap.UseDevMode(true))
		return own, own
	}
	encoding := uberzap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339TimeEncoder // as in controller-runtime
	sink := zapcore.AddSync(out)
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoding), sink, uberzap.InfoLevel)
	logger := func(core zapcore.Core) logr.Logger {
		return zapr.NewLogger(uberzap.New(core, uberzap.AddStacktrace(uberzap.ErrorLevel), uberzap.ErrorOutput(sink)))
	}
	return logger(core), logger(limited{core, rate.NewLimiter(librariesMax, librariesBurst)})
}

// limited drops messages beyond a limit. zap's sampler, which limits each message separately,
// takes half a megabyte.
type limited struct {
	zapcore.Core
	limiter *rate.Limiter
}

// With implements zapcore.Core.
func (l limited) With(fields []zapcore.Field) zapcore.Core {
	return limited{l.Core.With(fields), l.limiter}
}

// probesLogger is the name of the logger that logs each failing health probe, without the cause, which
// nodegate itself logs. Every client could fill the log with such probes.
const probesLogger = "controller-runtime.healthz"

// Check implements zapcore.Core.
func (l limited) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.LoggerName == probesLogger || !l.limiter.Allow() {
		return checked
	}
	return l.Core.Check(e, checked)
}

// redirectStandardLog makes the logger of the libraries log what Go's own libraries write to the
// standard log.
func redirectStandardLog(libraries logr.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetOutput(standardLog{libraries})
}

// standardLog is the output of the standard log. The HTTP server of the metrics port writes errors of
// handshakes to it, with which every client could fill the log: they are discarded.
type standardLog struct{ to logr.Logger }

// handshakeError is how such an error begins.
const handshakeError = "http: TLS handshake error"

// Write implements io.Writer.
func (s standardLog) Write(line []byte) (int, error) {
	if text := strings.TrimSpace(string(line)); !strings.HasPrefix(text, handshakeError) {
		s.to.Info(text)
	}
	return len(line), nil
}
