// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/nodegate/nodegate/testcluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// A write is a completed mutating request in the audit log.
type write struct {
	user        string
	verb        string
	resource    string // with the subresource: nodes, nodes/status, pods/binding
	namespace   string
	name        string
	dryRun      bool
	refused     bool
	received    time.Time // the request was received
	done        time.Time // the answer was complete
	code        int32
	node        *corev1.Node // the answer to a write of a node
	pod         *corev1.Pod  // the answer to a write of a pod or of its status
	boundToNode string       // where a pods/binding bound the pod
}

// readAudit returns all writes in the order of the log, up to its last complete
// line.
func readAudit(log io.Reader) ([]write, error) {
	var writes []write
	err := testcluster.ReadAudit(log, func(event *auditv1.Event) error {
		if event.ObjectRef == nil || !changes(event.Verb) {
			return nil
		}
		w, err := newWrite(event)
		if err != nil {
			return err
		}
		writes = append(writes, w)
		return nil
	})
	return writes, err
}

func changes(verb string) bool {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

func newWrite(event *auditv1.Event) (write, error) {
	ref := event.ObjectRef
	w := write{
		user: event.User.Username, verb: event.Verb,
		resource: ref.Resource, namespace: ref.Namespace, name: ref.Name,
		received: event.RequestReceivedTimestamp.Time, done: event.StageTimestamp.Time,
	}
	if ref.APIGroup != "" {
		w.resource = ref.APIGroup + "/" + w.resource
	}
	if ref.Subresource != "" {
		w.resource += "/" + ref.Subresource
	}
	if uri, err := url.ParseRequestURI(event.RequestURI); err == nil {
		w.dryRun = uri.Query().Get("dryRun") != ""
	}
	if event.ResponseStatus != nil {
		w.code = event.ResponseStatus.Code
	}
	w.refused = w.code < 200 || w.code > 299
	if w.refused {
		return w, nil
	}
	return w, w.readObjects(event)
}

// readObjects reads the bodies of a request that succeeded.
func (w *write) readObjects(event *auditv1.Event) error {
	switch w.resource {
	case "nodes", "nodes/status":
		if w.verb == "delete" || w.verb == "deletecollection" {
			return nil
		}
		w.node = new(corev1.Node)
		if err := readBody(event.ResponseObject, w.node); err != nil {
			return fmt.Errorf("reading the answer to %s %s %s: %w", w.verb, w.resource, w.name, err)
		}
		w.name = w.node.Name
	case "pods", "pods/status":
		if w.verb == "delete" || w.verb == "deletecollection" || event.ResponseObject == nil {
			return nil
		}
		w.pod = new(corev1.Pod)
		if err := readBody(event.ResponseObject, w.pod); err != nil {
			return fmt.Errorf("reading the answer to %s %s %s: %w", w.verb, w.resource, w.name, err)
		}
		w.name = w.pod.Name // the request of a generated name has none
	case "pods/binding":
		var binding corev1.Binding
		if err := readBody(event.RequestObject, &binding); err != nil {
			return fmt.Errorf("reading the binding of pod %s/%s: %w", w.namespace, w.name, err)
		}
		w.boundToNode = binding.Target.Name
	}
	return nil
}

func readBody(body *runtime.Unknown, into metav1.Object) error {
	if body == nil {
		return errors.New("the audit log does not have it; the audit policy must ask for level RequestResponse")
	}
	return json.Unmarshal(body.Raw, into)
}
