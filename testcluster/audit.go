// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

func readAudit(log io.Reader, each func(*auditv1.Event) error) error {
	reader := bufio.NewReader(log)
	for number := 1; ; number++ {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		var event auditv1.Event
		err = json.Unmarshal(line, &event)
		if err == nil && (event.Stage == auditv1.StageResponseComplete || event.Stage == auditv1.StagePanic) {
			err = each(&event)
		}
		if err != nil {
			return fmt.Errorf("parsing line %d of the audit log: %w", number, err)
		}
	}
}

// ReadAuditFile calls each for every completed request in an audit log from an offset on, in the
// order of the log. A request during which the API server panicked is completed, with status 500.
// It ignores an incomplete last line, because the API server may still be writing it. It stops at
// the first error that each returns.
func ReadAuditFile(path string, offset int64, each func(*auditv1.Event) error) error {
	log, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	defer log.Close()
	if _, err := log.Seek(offset, io.SeekStart); err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	return readAudit(log, each)
}

// AuditLength returns the length of the complete lines of an audit log: an offset for
// ReadAuditFile. The size of the file may be within a line that is being written.
func AuditLength(path string) (int64, error) {
	log, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("opening the audit log: %w", err)
	}
	defer log.Close()
	end, err := log.Seek(0, io.SeekEnd)
	block := make([]byte, 64<<10)
	for err == nil && end > 0 {
		from := max(0, end-int64(len(block)))
		part := block[:end-from]
		if _, err = log.ReadAt(part, from); err != nil {
			break
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		end = from
	}
	if err != nil {
		return 0, fmt.Errorf("reading the audit log: %w", err)
	}
	return 0, nil
}

// IsDryRun reports whether the request was a dry run.
func IsDryRun(event *auditv1.Event) bool {
	u, err := url.ParseRequestURI(event.RequestURI)
	return err == nil && u.Query().Get("dryRun") != ""
}

// ResourceVersion returns the resourceVersion of the object with which the request was
// answered. It returns "" for other responses, such as that to a deletion.
func ResourceVersion(event *auditv1.Event) string {
	var object struct {
		Metadata struct{ ResourceVersion string }
	}
	if event.ResponseObject == nil || json.Unmarshal(event.ResponseObject.Raw, &object) != nil {
		return ""
	}
	return object.Metadata.ResourceVersion
}
