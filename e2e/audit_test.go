// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
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

// nodeWrites returns the bodies of the controller's successful writes of the current node
// with this name, according to the audit log.
func (e *env) nodeWrites(name string) []string {
	e.Helper()
	writes, _ := e.loggedWrites(name)
	return writes
}

// loggedWrites returns nodeWrites, and whether the log contains the node's last write. The
// API server responds before it logs, and logs nothing if it is killed.
func (e *env) loggedWrites(name string) (writes []string, complete bool) {
	e.Helper()
	var node corev1.Node
	e.must(e.admin.Get(e.Context(), client.ObjectKey{Name: name}, &node))
	for _, event := range e.audit() {
		if event.ObjectRef.Resource != "nodes" || event.ResponseObject.Metadata.UID != node.UID {
			continue
		}
		complete = complete || event.ResponseObject.Metadata.ResourceVersion == node.ResourceVersion
		if event.writesNode() && event.ObjectRef.Name == name {
			writes = append(writes, string(event.RequestObject))
		}
	}
	return writes, complete
}

// installationUser is the name of the controller's user.
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

// audit returns the requests in the audit log.
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
		// A probe of the guards is no write, and comes at any time to any node.
		probe := event.Verb == "patch" && strings.Contains(event.URI, "dryRun=All") && event.User.Username == installationUser
		if event.Stage == "ResponseComplete" && !probe {
			l.events = append(l.events, event)
		}
	}
}

// watchFor counts the states of nodes that match, until the returned function is called.
// It observes all states: if the API server ends the watch, because this process is too
// busy to read, the watch is resumed.
func (e *env) watchFor(fits func(*corev1.Node) bool) (stop func() int) {
	e.Helper()
	var nodes corev1.NodeList
	e.must(e.admin.List(e.Context(), &nodes))
	w, err := watchtools.NewRetryWatcherWithContext(e.Context(), nodes.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return e.admin.Watch(ctx, &corev1.NodeList{}, &client.ListOptions{Raw: &o})
		},
	})
	e.must(err)
	const last = "last-to-be-watched"
	count := make(chan int, 1)
	go func() {
		n := 0
		for i := range nodes.Items {
			if fits(&nodes.Items[i]) {
				n++
			}
		}
		for event := range w.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			switch {
			case !ok:
				e.Errorf("the watch of nodes broke: %+v", event.Object)
			case node.Name == last:
				count <- n
				return
			case fits(node):
				n++
			}
		}
		if e.Context().Err() == nil {
			e.Error("the watch of nodes ended before all was seen")
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
