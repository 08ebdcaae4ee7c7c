// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
)

// liveHeap is in the text form of a heap profile. It was read after the collection,
// and before anything was allocated to write it down, unlike what metrics say.
var liveHeap = regexp.MustCompile(`(?m)^# HeapAlloc = ([0-9]+)$`)

// LiveHeap has a process that serves net/http/pprof collect its garbage, and returns
// the bytes of its heap that are in use then.
func LiveHeap(ctx context.Context, client *http.Client, host string) (bytes int64, err error) {
	profile, err := Get(ctx, client, host+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := liveHeap.FindSubmatch(profile)
	if found == nil {
		return 0, fmt.Errorf("reading the heap of %s: it does not tell HeapAlloc", host)
	}
	return strconv.ParseInt(string(found[1]), 10, 64)
}
