// SPDX-License-Identifier: Apache-2.0

package read

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/nodegate/nodegate/internal/kube/clients"
	"github.com/nodegate/nodegate/internal/kube/wire"
)

// podReader reads all pods that are bound to a node. A large cluster has hundreds of
// megabytes of them. Therefore a page is requested as soon as its token is known, which is
// at the beginning of the page before it, and received while that is decoded. Memory is
// used again.
type podReader struct {
	client rest.Interface
	// decoder decodes pages in protobuf, and may leave out what is not needed.
	decoder runtime.Decoder
	page    int64
}

const (
	// podPageSize is the number of pods for each request. For each page, an API server visits
	// all pods that follow, so that pages of the usual size would make up a quarter of its work.
	podPageSize = 5000
	// headBytes usually contain a list's metadata, with the token of the next page.
	headBytes = 4 << 10
)

// each calls each for every pod.
func (r *podReader) each(ctx context.Context, each func(*corev1.Pod)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var bodies [2]bytes.Buffer // of the page that is decoded, and of the next one
	next := r.request(ctx, "", &bodies[0])
	for n := 1; next != nil; n++ {
		page := next
		next = nil
		if token := <-page.next; token != "" {
			next = r.request(ctx, token, &bodies[n%len(bodies)])
		}
		<-page.done
		var list corev1.PodList
		if page.err == nil {
			page.err = r.decode(page.body.Bytes(), &list) // decoded objects do not refer to the body
		}
		if page.err != nil {
			return fmt.Errorf("listing all pods: %w", page.err)
		}
		for i := range list.Items {
			each(&list.Items[i])
		}
	}
	return nil
}

// podPage is a page that is being received.
type podPage struct {
	body *bytes.Buffer
	// next receives the token of the next page, if there is one. It is closed when the page
	// was received.
	next chan string
	// done is closed when the page was received. Only then may body and err be used.
	done chan struct{}
	err  error
}

// request begins to receive the page with a token into a buffer.
func (r *podReader) request(ctx context.Context, token string, into *bytes.Buffer) *podPage {
	p := &podPage{body: into, next: make(chan string, 1), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer close(p.next)
		p.err = r.receive(ctx, token, p)
	}()
	return p
}

func (r *podReader) receive(ctx context.Context, token string, p *podPage) error {
	o := metav1.ListOptions{FieldSelector: clients.OnSomeNode, Limit: r.page, Continue: token}
	body, err := r.client.Get().Resource("pods").VersionedParams(&o, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	p.body.Reset()
	if _, err := p.body.ReadFrom(io.LimitReader(body, headBytes)); err != nil {
		return fmt.Errorf("reading the response: %w", err)
	}
	known := p.tellNext()
	if _, err := p.body.ReadFrom(body); err != nil {
		return fmt.Errorf("reading the response: %w", err)
	}
	if known || p.tellNext() {
		return nil
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(p.body.Bytes(), &list); err != nil {
		return fmt.Errorf("decoding the response: %w", err)
	}
	p.next <- list.Continue
	return nil
}

// tellNext sends the token of the next page, if what was received contains it in protobuf.
func (p *podPage) tellNext() bool {
	meta, ok := wire.ListMeta(p.body.Bytes())
	if ok {
		p.next <- meta.Continue
	}
	return ok
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
