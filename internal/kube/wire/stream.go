// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodReader reads lists of pods while they are received, and holds one pod at a time. The
// size of a list is limited only by those who create pods.
type PodReader struct {
	*decoder
	all runtime.Decoder
}

// NewPodReader returns a PodReader. Lists in another encoding than protobuf are decoded by
// all, as a whole.
func NewPodReader(all runtime.Decoder, o Options) *PodReader {
	return &PodReader{decoder: newDecoder(o), all: all}
}

// Each calls each for every pod of a list, as far as the list is valid.
func (p *PodReader) Each(list io.Reader, each func(*corev1.Pod)) error {
	r := bufio.NewReader(list)
	if head, err := r.Peek(len(prefix)); err != nil || !bytes.Equal(head, prefix) {
		return p.whole(r, each)
	}
	_, _ = r.Discard(len(prefix)) // it has been read
	var kind string
	complete := false
	err := eachField(r, func(number protowire.Number, value io.Reader) error {
		if number == 2 && kind == "PodList" && !complete {
			complete = true
			return p.items(value, each)
		}
		message, err := io.ReadAll(value)
		if err != nil || len(message) == 0 { // content encoding and content type are empty
			return err
		}
		if number != 1 || kind != "" {
			return fmt.Errorf("unexpected field %d in a response of kind %q", number, kind)
		}
		_, name, err := pair(message)
		kind = string(name)
		return err
	})
	if err == nil && !complete {
		err = fmt.Errorf("the response, of kind %q, ends early: %w", kind, io.ErrUnexpectedEOF)
	}
	return err
}

// whole reads a list as a whole.
func (p *PodReader) whole(from io.Reader, each func(*corev1.Pod)) error {
	data, err := io.ReadAll(from)
	if err == nil && len(data) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	var list corev1.PodList
	if _, _, err := p.all.Decode(data, nil, &list); err != nil {
		return err
	}
	for i := range list.Items {
		each(&list.Items[i])
	}
	return nil
}

// items reads the items of a list.
func (p *PodReader) items(list io.Reader, each func(*corev1.Pod)) error {
	var item bytes.Buffer
	return eachField(bufio.NewReader(list), func(number protowire.Number, value io.Reader) error {
		item.Reset()
		if _, err := item.ReadFrom(value); err != nil || number != 2 {
			return err
		}
		var pod corev1.Pod
		if err := p.pod(item.Bytes(), &pod); err != nil {
			return err
		}
		each(&pod)
		return nil
	})
}

// eachField calls do for each field of a message whose fields are messages or texts. do reads
// the whole value.
func eachField(message *bufio.Reader, do func(number protowire.Number, value io.Reader) error) error {
	for {
		tag, err := binary.ReadUvarint(message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a field: %w", err)
		}
		length, err := binary.ReadUvarint(message)
		if err != nil {
			return fmt.Errorf("reading the length of a field: %w", err)
		}
		number, kind := protowire.DecodeTag(tag)
		if kind != protowire.BytesType || length > 1<<40 {
			return fmt.Errorf("field %d has wire type %d and length %d", number, kind, length)
		}
		value := &wholeValue{io.LimitedReader{R: message, N: int64(length)}} //nolint:gosec // it is small
		if err := do(number, value); err != nil {
			return err
		}
	}
}

// wholeValue reads a value, and fails if it ends early.
type wholeValue struct{ io.LimitedReader }

// Read implements io.Reader.
func (w *wholeValue) Read(p []byte) (int, error) {
	n, err := w.LimitedReader.Read(p)
	if errors.Is(err, io.EOF) && w.N > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
