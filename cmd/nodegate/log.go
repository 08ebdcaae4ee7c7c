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

// newLogs returns the log of what nodegate does, and that of the libraries it is
// built on. Both write to the same place: JSON, or text for a person to read.
//
// What the libraries say is sampled: after a hundred lines of one message in a
// second, one in a hundred is written, or they could flood the log. What nodegate
// does is not: which gate opened on which node is told of each, also in a burst of
// thousands. A line takes 2 µs, and what could repeat itself without end, such as
// writes that are tried again, is told once in a row.
func newLogs(out io.Writer, development bool) (own, libraries logr.Logger) {
	libraries = zap.New(zap.WriteTo(out), zap.UseDevMode(development))
	if development { // it is not sampled
		return libraries, libraries
	}
	encoding := uberzap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339TimeEncoder // as controller-runtime writes it
	sink := zapcore.AddSync(out)
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoding), sink, uberzap.InfoLevel)
	return zapr.NewLogger(uberzap.New(core, uberzap.AddStacktrace(uberzap.ErrorLevel), uberzap.ErrorOutput(sink))), libraries
}
