// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// newLogs returns nodegate's own logger, and the logger of the libraries. Both write to the
// same output: JSON, or text in development.
//
// Messages of libraries are sampled, so that they cannot flood the log: after a hundred
// lines with the same message in a second, one in a hundred is written. nodegate's own
// messages are not sampled, so that every opening of a gate on a node is logged, even in a
// burst of thousands. A line takes 2 µs. Events that can repeat endlessly, such as retried
// writes, are logged once in a row.
func newLogs(out io.Writer, development bool) (own, libraries logr.Logger) {
	libraries = zap.New(zap.WriteTo(out), zap.UseDevMode(development))
	if development { // without sampling
		return libraries, libraries
	}
	encoding := uberzap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339TimeEncoder // as in controller-runtime
	sink := zapcore.AddSync(out)
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoding), sink, uberzap.InfoLevel)
	return zapr.NewLogger(uberzap.New(core, uberzap.AddStacktrace(uberzap.ErrorLevel), uberzap.ErrorOutput(sink))), libraries
}
