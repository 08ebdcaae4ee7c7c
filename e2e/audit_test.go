// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// auditEvent is what tests read of the API server's audit log.
type auditEvent struct {
	Stage     string           `json:"stage"`
	Verb      string           `json:"verb"`
	RequestID types.UID        `json:"auditID"`
	Received  metav1.MicroTime `json:"requestReceivedTimestamp"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	ResponseObject struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	} `json:"responseObject"`
	RequestObject json.RawMessage `json:"requestObject"`
}

// bindsTo tells whether the event is that of a pod being bound to a node.
func (a *auditEvent) bindsTo(node string) bool {
	var binding corev1.Binding
	return a.ObjectRef.Subresource == "binding" && a.ResponseStatus.Code == 201 &&
		json.Unmarshal(a.RequestObject, &binding) == nil && binding.Target.Name == node
}

// writesNode tells whether the event is a successful write of a node by the
// controller.
func (a *auditEvent) writesNode() bool {
	return a.ObjectRef.Resource == "nodes" && a.Verb == "patch" && a.ResponseStatus.Code == 200 && a.User.Username == installationUser
}

// nodeWrites returns the bodies of the controller's successful writes of the
// node that has this name now, as the API server's audit log has them.
func (e *env) nodeWrites(name string) []string {
	e.Helper()
	var node corev1.Node
	e.must(e.admin.Get(e.Context(), client.ObjectKey{Name: name}, &node))
	var writes []string
	for _, event := range e.audit() {
		if event.writesNode() && event.ObjectRef.Name == name && event.ResponseObject.Metadata.UID == node.UID {
			writes = append(writes, string(event.RequestObject))
		}
	}
	return writes
}

// installationUser is the controller, as the API server calls it.
var installationUser = installation.Username()

// auditLogs are the audit logs as far as they have been read, by file: they grow
// with every test, and tests look at them often.
var auditLogs = struct {
	sync.Mutex
	byFile map[string]*auditLog
}{byFile: make(map[string]*auditLog)}

type auditLog struct {
	offset int64
	events []auditEvent
}

// audit reads the audit log: what the API server says was asked of it.
func (e *env) audit() []auditEvent {
	e.Helper()
	auditLogs.Lock()
	defer auditLogs.Unlock()
	file := e.cluster.AuditLog()
	log, ok := auditLogs.byFile[file]
	if !ok {
		log = &auditLog{}
		auditLogs.byFile[file] = log
	}
	e.must(log.readOn(file))
	return slices.Clip(log.events)
}

// readOn reads the lines that have been completed since.
func (l *auditLog) readOn(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return err
	}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		l.offset += int64(len(line))
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		if event.Stage == "ResponseComplete" {
			l.events = append(l.events, event)
		}
	}
}

// watchFor counts the states of nodes that are seen to fit, until the returned
// function is called.
func (e *env) watchFor(fits func(*corev1.Node) bool) (stop func() int) {
	e.Helper()
	w, err := e.admin.Watch(e.Context(), &corev1.NodeList{})
	e.must(err)
	const last = "last-to-be-watched"
	count := make(chan int, 1)
	go func() {
		n := 0
		for event := range w.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if ok && node.Name == last {
				break
			}
			if ok && fits(node) {
				n++
			}
		}
		count <- n
	}()
	return func() int {
		defer w.Stop()
		// Events come in order: when this node is seen, so is all that was before.
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: last}}
		e.must(e.admin.Create(e.Context(), node))
		e.must(e.admin.Delete(e.Context(), node))
		return <-count
	}
}
