// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The judge gets the writes that show whether nodes and nodegate can work: those of the kinds that
// kubelets and nodegate write, and all that were rejected.
func TestReadAuditKeepsRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log := `{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:node:a"},"objectRef":{"resource":"nodes","subresource":"status","name":"carried out"},"responseStatus":{"code":200},"requestObject":{"x":1}}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"admin","groups":["system:masters"]},"objectRef":{"resource":"nodes","name":"rejected"},"responseStatus":{"code":403,"message":"why"},"requestObject":{"x":2}}
{"stage":"ResponseComplete","verb":"delete","objectRef":{"resource":"nodes","name":"deleted"},"responseStatus":{"code":200}}
{"stage":"Panic","verb":"create","objectRef":{"resource":"nodes","name":"panic"},"responseStatus":{"code":500,"message":"APIServer panic'd"}}
{"stage":"ResponseComplete","verb":"update","objectRef":{"resource":"leases","namespace":"kube-node-lease","name":"lease"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"create","objectRef":{"resource":"events","name":"rejected event"},"responseStatus":{"code":403,"message":"why"}}
{"stage":"ResponseComplete","verb":"create","objectRef":{"resource":"events","name":"event"},"responseStatus":{"code":201}}
{"stage":"ResponseComplete","verb":"get","objectRef":{"resource":"nodes","name":"read"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"patch","requestURI":"/api/v1/nodes/x?dryRun=All","objectRef":{"resource":"nodes","name":"dry run"},"responseStatus":{"code":403}}
{"stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"nodes","name":"not answered"},"responseStatus":{"code":200,"message":"Connection closed early"}}
`
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	_, requests, err := readAudit(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range requests {
		text := r.Name + ": " + r.Verb + " " + r.Resource + " by " + r.User + " " + r.Message + string(r.Body)
		if r.IsMaster {
			text += ", a master"
		}
		got = append(got, text)
	}
	want := `carried out: patch nodes/status by system:node:a 
rejected: patch nodes by admin why{"x":2}, a master
deleted: delete nodes by  
panic: create nodes by  APIServer panic'd
lease: update leases by  
rejected event: create events by  why`
	if all := strings.Join(got, "\n"); all != want {
		t.Errorf("read\n%s\nwant\n%s", all, want)
	}
}

// The judge gets what a Node was sent with, before admission changed it, and without its status.
func TestReadAuditKeepsSentNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log := `{"stage":"ResponseComplete","verb":"create","objectRef":{"resource":"nodes","name":"a"},"responseStatus":{"code":201},"requestObject":{"metadata":{"name":"a","labels":{"x":"y"}},"status":{"nodeInfo":{"bootID":"b"}}},"responseObject":{"metadata":{"resourceVersion":"7"}}}
{"stage":"ResponseComplete","verb":"update","objectRef":{"resource":"nodes","name":"a"},"responseStatus":{"code":200},"requestObject":{"metadata":{"name":"a"}},"responseObject":{"metadata":{"resourceVersion":"8"}}}
`
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	writes, _, err := readAudit(path, 0)
	if err != nil || len(writes) != 2 {
		t.Fatalf("read %v, %v; want two writes", writes, err)
	}
	if sent := writes[0].Sent; sent == nil || sent.Labels["x"] != "y" || sent.Status.NodeInfo.BootID != "" {
		t.Errorf("the Node was sent as %v", sent)
	}
	if writes[1].Sent != nil {
		t.Errorf("an update has sent a new Node: %v", writes[1].Sent)
	}
}
