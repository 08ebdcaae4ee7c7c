// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// slowEtcd is at revision 7. It needs a minute to return objects.
type slowEtcd struct{ clientv3.KV }

func (slowEtcd) Get(_ context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if request := clientv3.OpGet(key, options...); !request.IsCountOnly() {
		<-time.After(time.Minute)
	}
	return &clientv3.GetResponse{Header: &etcdserverpb.ResponseHeader{Revision: 7}}, nil
}

// A history ends when its last revision is read. Nothing is known about the time that is needed to
// read the objects, so it is not quiet.
func TestHistoryEndsAtItsLastRevision(t *testing.T) {
	auditLog := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(auditLog, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		h, err := Read(t.Context(), &clientv3.Client{KV: slowEtcd{}}, auditLog, Position{Revision: 7})
		if err != nil {
			t.Fatal(err)
		}
		if h.To != 7 || !h.End.Equal(began) || time.Since(began) < time.Minute {
			t.Errorf("revision %d, read %s after the beginning; want 7, at the beginning", h.To, h.End.Sub(began))
		}
	})
}
