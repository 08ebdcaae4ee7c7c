// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// auditEvent contains the fields of an audit event that tests use.
type auditEvent struct {
	Stage     string           `json:"stage"`
	Verb      string           `json:"verb"`
	URI       string           `json:"requestURI"`
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

// bindsTo reports whether the event binds a pod to a node.
func (a *auditEvent) bindsTo(node string) bool {
	var binding corev1.Binding
	return a.ObjectRef.Subresource == "binding" && a.ResponseStatus.Code == 201 &&
		json.Unmarshal(a.RequestObject, &binding) == nil && binding.Target.Name == node
}

// writesNode reports whether the event is a successful write of a node by the controller.
func (a *auditEvent) writesNode() bool {
	return a.ObjectRef.Resource == "nodes" && a.Verb == "patch" && a.ResponseStatus.Code == 200 && a.User.Username == installationUser
}

// nodeWrites returns the bodies of the controller's successful writes of the current Node, once
// the audit log contains the last write of it. The API server responds before it logs.
func (k *kubelet) nodeWrites() []string {
	k.Helper()
	return k.writesByNode(k)[k.name]
}

// writesByNode is like nodeWrites for several nodes, by their names.
func (e *env) writesByNode(fleet ...*kubelet) map[string][]string {
	e.Helper()
	var nodes corev1.NodeList
	e.must(e.admin.List(e.Context(), &nodes))
	last := make(map[types.UID]string) // the resource versions
	for i := range nodes.Items {
		if n := &nodes.Items[i]; slices.ContainsFunc(fleet, func(k *kubelet) bool { return k.name == n.Name }) {
			last[n.UID] = n.ResourceVersion
		}
	}
	var writes map[string][]string
	e.eventually("the audit log contains the last write of each node", func() error {
		writes = make(map[string][]string)
		missing := maps.Clone(last)
		for _, event := range e.audit() {
			written := event.ResponseObject.Metadata
			if _, ok := last[written.UID]; !ok || event.ObjectRef.Resource != "nodes" {
				continue
			}
			if missing[written.UID] == written.ResourceVersion {
				delete(missing, written.UID)
			}
			if event.writesNode() {
				writes[event.ObjectRef.Name] = append(writes[event.ObjectRef.Name], string(event.RequestObject))
			}
		}
		return errUnless(len(missing) == 0, fmt.Sprintf("the last writes of %d of %d nodes are missing", len(missing), len(last)))
	})
	return writes
}

// wrote checks the number of the controller's writes of the node.
func (k *kubelet) wrote(want int) {
	k.Helper()
	if writes := k.nodeWrites(); len(writes) != want {
		k.Errorf("nodegate wrote node %s %d times, want %d:\n%s", k.name, len(writes), want, strings.Join(writes, "\n"))
	}
}

// loggedWrites is nodeWrites without the wait. The audit log may lack the last writes: the
// API server responds before it logs, and logs nothing if it is killed.
func (k *kubelet) loggedWrites() (writes []string) {
	k.Helper()
	uid := k.node().UID
	for _, event := range k.audit() {
		if event.writesNode() && event.ResponseObject.Metadata.UID == uid {
			writes = append(writes, string(event.RequestObject))
		}
	}
	return writes
}

// loggedSoFar waits until the audit log contains a request of the test, and so the requests
// to which the API server responded before.
func (e *env) loggedSoFar() []auditEvent {
	e.Helper()
	marker := string(uuid.NewUUID())
	err := e.admin.Get(e.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: marker}, &corev1.ConfigMap{})
	e.must(client.IgnoreNotFound(err))
	var events []auditEvent
	e.eventually("the audit log contains the test's request", func() error {
		events = e.audit()
		if !slices.ContainsFunc(events, func(event auditEvent) bool { return event.ObjectRef.Name == marker }) {
			return fmt.Errorf("%d events", len(events))
		}
		return nil
	})
	return events
}

// requestsFor returns the number of the controller's finished requests for a resource since
// some time. A watch is finished when it has ended.
func (e *env) requestsFor(resource, verb string, since time.Time) (n int) {
	e.Helper()
	for _, event := range e.audit() {
		if event.ObjectRef.Resource == resource && event.Verb == verb && event.User.Username == installationUser &&
			!event.Received.Time.Before(since) {
			n++
		}
	}
	return n
}

// openWatches returns the number of watches of a resource that the controller has started
// since some time and that have not ended.
func (e *env) openWatches(resource string, since time.Time) int {
	e.Helper()
	e.loggedSoFar()
	log := e.readAuditLog()
	open := make(map[types.UID]bool)
	for _, event := range log.watches {
		if event.ObjectRef.Resource == resource && event.User.Username == installationUser && !event.Received.Time.Before(since) {
			open[event.RequestID] = true
		}
	}
	for _, event := range log.events {
		delete(open, event.RequestID)
	}
	return len(open)
}

// awaitWatchEnded waits until a watch of a resource, which the controller started after some
// time, has ended.
func (e *env) awaitWatchEnded(resource string, since time.Time) {
	e.Helper()
	e.eventually("the controller stops its watch of "+resource, func() error { return unless(e.requestsFor(resource, "watch", since) > 0) })
}

// installationUser is the name of the controller's user.
var installationUser = installation.Username()

// auditLogs contains the part of each audit log that has been read, by file. Tests read the
// logs often, and every test makes them longer.
var auditLogs = struct {
	sync.Mutex
	byFile map[string]*auditLog
}{byFile: make(map[string]*auditLog)}

type auditLog struct {
	offset int64
	// events are finished requests.
	events []auditEvent
	// watches are watches that have started. They are also in events when they have ended.
	watches []auditEvent
}

// auditMark is a position in an audit log: numbers of entries.
type auditMark struct{ events, watches int }

// audit returns the finished requests in the audit log.
func (e *env) audit() []auditEvent {
	e.Helper()
	return e.readAuditLog().events
}

// readAuditLog returns what the audit log contains about this test.
func (e *env) readAuditLog() auditLog {
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
	return auditLog{events: slices.Clip(log.events[e.earlier.events:]), watches: slices.Clip(log.watches[e.earlier.watches:])}
}

// readOn reads the lines that have been completed since the last call.
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
		// The probe of a guard writes nothing, and can target any node at any time.
		probe := event.Verb == "patch" && strings.Contains(event.URI, "dryRun=All") && event.User.Username == installationUser
		switch {
		case event.Stage == "ResponseComplete" && !probe:
			l.events = append(l.events, event)
		case event.Stage == "ResponseStarted" && event.Verb == "watch":
			l.watches = append(l.watches, event)
		}
	}
}
