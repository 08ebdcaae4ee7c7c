// SPDX-License-Identifier: Apache-2.0

package read

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/wire"
)

// podReader reads all pods that are bound to a node. A large cluster has hundreds of
// megabytes of them. Therefore the next page is received while one is decoded, into memory
// that is used again, and responses are compressed only if that is faster.
type podReader struct {
	client rest.Interface
	// decoder decodes pages in protobuf, and may leave out what is not needed.
	decoder runtime.Decoder
	page    int64
}

// podPageSize is the number of pods for each request. For each page, an API server visits
// all pods that follow, so that pages of the usual size would make up a quarter of its work.
const podPageSize = 2500

// podPage is a page that was received, or an error.
type podPage struct {
	body *bytes.Buffer
	err  error
}

// each calls each for every pod.
func (r *podReader) each(ctx context.Context, each func(*corev1.Pod)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages, free := make(chan podPage), make(chan *bytes.Buffer, 2)
	for range cap(free) {
		free <- &bytes.Buffer{}
	}
	go func() {
		defer close(pages)
		r.receive(ctx, free, pages)
	}()
	for page := range pages {
		var list corev1.PodList
		if page.err == nil {
			page.err = r.decode(page.body.Bytes(), &list)
		}
		if page.err != nil {
			return fmt.Errorf("listing all pods: %w", page.err)
		}
		free <- page.body // decoded objects do not refer to it
		for i := range list.Items {
			each(&list.Items[i])
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("listing all pods: %w", err)
	}
	return nil
}

// receive sends all pages to a channel. A page with an error is the last one.
func (r *podReader) receive(ctx context.Context, free <-chan *bytes.Buffer, pages chan<- podPage) {
	var speeds compression
	o := metav1.ListOptions{FieldSelector: clients.OnSomeNode, Limit: r.page}
	for more := true; more; {
		var page podPage
		select {
		case <-ctx.Done():
			return
		case page.body = <-free:
		}
		plain := speeds.plainNext()
		began := time.Now()
		if page.err = r.request(ctx, &o, plain, page.body); page.err == nil {
			speeds.received(plain, page.body.Len(), time.Since(began))
			o.Continue, page.err = r.continueOf(page.body.Bytes())
		}
		more = page.err == nil && o.Continue != ""
		select {
		case <-ctx.Done():
			return
		case pages <- page:
		}
	}
}

// request requests a page, and reads the response into a buffer.
func (r *podReader) request(ctx context.Context, o *metav1.ListOptions, plain bool, into *bytes.Buffer) error {
	request := r.client.Get().Resource("pods").VersionedParams(o, scheme.ParameterCodec)
	if plain {
		request.SetHeader("Accept-Encoding", "identity")
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	into.Reset()
	if _, err := into.ReadFrom(body); err != nil {
		return fmt.Errorf("reading the response: %w", err)
	}
	return nil
}

// continueOf returns the token that requests the page after this one, or "" if there is
// none.
func (r *podReader) continueOf(body []byte) (string, error) {
	if m, ok := wire.ListMeta(body); ok {
		return m.Continue, nil
	}
	var list corev1.PodList // in JSON
	err := r.decode(body, &list)
	return list.Continue, err
}

// decode decodes a page, in protobuf or in JSON.
func (r *podReader) decode(body []byte, into *corev1.PodList) error {
	decoder := r.decoder
	if _, ok := wire.ListMeta(body); !ok {
		decoder = scheme.Codecs.UniversalDeserializer()
	}
	if _, _, err := decoder.Decode(body, nil, into); err != nil {
		return fmt.Errorf("decoding the response: %w", err)
	}
	return nil
}

// compression determines whether compressed responses arrive faster than others. An API
// server compresses more slowly than a local network transfers, and a slow connection
// transfers more slowly than that.
type compression struct {
	pages int
	// compressed and plain are the pages so far, without the first one, which includes the
	// setup of the connection.
	compressed, plain transfer
}

// transfer is how many bytes, after decompression, were received in which time.
type transfer struct {
	bytes float64
	took  time.Duration
}

func (t transfer) perSecond() float64 { return t.bytes / max(t.took, 1).Seconds() }

// triedPages is the number of pages that are compressed and not compressed alternately,
// before the faster transfer is used.
const triedPages = 5

// plainNext reports whether the next page should not be compressed.
func (c *compression) plainNext() bool {
	if c.pages < triedPages {
		return c.pages%2 == 1
	}
	return c.plain.perSecond() > c.compressed.perSecond()
}

// received records a page.
func (c *compression) received(plain bool, size int, took time.Duration) {
	if c.pages++; c.pages == 1 {
		return
	}
	to := &c.compressed
	if plain {
		to = &c.plain
	}
	to.bytes, to.took = to.bytes+float64(size), to.took+took
}
