// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// A logWriter writes an audit log. Every event is one millisecond after the
// one before, and is answered half a millisecond after it was received.
type logWriter struct {
	t      *testing.T
	events []auditv1.Event
}

func (l *logWriter) now() time.Time {
	return start.Add(time.Duration(len(l.events)) * time.Millisecond)
}

// add appends an event, which the caller may still change.
func (l *logWriter) add(user, verb, resource, namespace, name string) *auditv1.Event {
	resource, subresource, _ := strings.Cut(resource, "/")
	l.events = append(l.events, auditv1.Event{
		Stage: auditv1.StageResponseComplete, Verb: verb, RequestURI: "/api/v1/" + resource,
		ObjectRef:                &auditv1.ObjectReference{Resource: resource, Subresource: subresource, Namespace: namespace, Name: name},
		ResponseStatus:           &metav1.Status{Code: 200},
		RequestReceivedTimestamp: metav1.NewMicroTime(l.now()),
		StageTimestamp:           metav1.NewMicroTime(l.now().Add(time.Millisecond / 2)),
	})
	e := &l.events[len(l.events)-1]
	e.User.Username = user
	return e
}

func (l *logWriter) body(object any) *runtime.Unknown {
	raw, err := json.Marshal(object)
	if err != nil {
		l.t.Fatal(err)
	}
	return &runtime.Unknown{Raw: raw}
}

// node adds a write of a node whose response has these taints.
func (l *logWriter) node(user, verb, resource, name string, taints ...corev1.Taint) *auditv1.Event {
	e := l.add(user, verb, resource, "", name)
	e.ResponseObject = l.body(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: fmt.Sprint(100 + len(l.events))},
		Spec:       corev1.NodeSpec{Taints: taints},
	})
	return e
}

func (l *logWriter) register(name string, taints ...corev1.Taint) {
	l.node("system:node:"+name, "create", "nodes", name, taints...)
}

func (l *logWriter) patch(user, name string, taints ...corev1.Taint) *auditv1.Event {
	return l.node(user, "patch", "nodes", name, taints...)
}

func (l *logWriter) heartbeat(name string, taints ...corev1.Taint) {
	l.node("system:node:"+name, "patch", "nodes/status", name, taints...)
}

// daemonReady reports that the daemon's pod on the node is ready.
func (l *logWriter) daemonReady(daemon, node string) {
	controller := true
	e := l.add("system:node:"+node, "patch", "pods/status", "kube-system", daemon+"-"+node)
	e.ResponseObject = l.body(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: daemon + "-" + node,
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: daemon, Controller: &controller}},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	})
}

func (l *logWriter) createPod(namespace, name string, tolerations ...corev1.Toleration) {
	e := l.add(someone, "create", "pods", namespace, "")
	e.ResponseObject = l.body(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Tolerations: tolerations},
	})
}

func (l *logWriter) bind(namespace, name, node string) *auditv1.Event {
	e := l.add(scheduler, "create", "pods/binding", namespace, name)
	e.RequestObject = l.body(&corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}})
	return e
}

func (l *logWriter) read() []write {
	l.t.Helper()
	var log bytes.Buffer
	for i := range l.events {
		line, err := json.Marshal(&l.events[i])
		if err != nil {
			l.t.Fatal(err)
		}
		log.Write(append(line, '\n'))
	}
	writes, err := readAudit(&log)
	if err != nil {
		l.t.Fatal(err)
	}
	return writes
}

func TestReadAuditStopsBeforeHalfALine(t *testing.T) {
	writes, err := readAudit(strings.NewReader(`{"stage":"ResponseComplete","verb":"create","objectRef":{"resource":"x"},"responseStatus":{"code":201}}` + "\n" + `{"stage":"Resp`))
	if err != nil || len(writes) != 1 {
		t.Errorf("got %d writes and error %v, want one write", len(writes), err)
	}
}

func TestReadAuditSaysWhichLineIsWrong(t *testing.T) {
	for name, log := range map[string]string{
		"no JSON":     "what\n",
		"no response": `{"stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readAudit(strings.NewReader(log)); err == nil || !strings.Contains(err.Error(), "line 1 ") {
				t.Errorf("error is %v, want one that names line 1", err)
			}
		})
	}
}
