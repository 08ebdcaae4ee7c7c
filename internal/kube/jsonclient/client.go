// SPDX-License-Identifier: Apache-2.0

// Package jsonclient watches objects of the API server as JSON, and patches them. Only the
// fields that the caller's types have are decoded. It uses client-go's transport, but none of
// its clients, schemes and codecs: the node agent would need more memory for their code than
// for everything else.
package jsonclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"

	"github.com/nodegate/nodegate/internal/kube/connection"
)

const (
	// serviceAccountDir is where the kubelet mounts the credentials of a pod.
	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// requestTimeout limits requests other than lists and watches.
	requestTimeout = 30 * time.Second
	// pingAfter is the time without anything received after which the connection is tested. Often,
	// nothing else is sent for minutes: thousands of agents that test theirs every few seconds
	// cause no noticeable load.
	pingAfter = 5 * time.Second
	// answerWithin is how long the API server may take to answer a ping. To close a connection that still
	// works costs little: collections continue their watches through the next one.
	answerWithin = 5 * time.Second
	// maxStatus limits how much of a response with an error is read.
	maxStatus = 64 << 10
)

// Client sends requests to an API server.
type Client struct {
	http http.Client
	host string
}

// New returns a client of the API server with a URL. The transport authenticates requests,
// reads tokens and certificate authorities from files again when they change, and detects
// lost connections.
func New(host string, config *transport.Config) (*Client, error) {
	pinged := *config
	pinged.Wrap(connection.With(http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: answerWithin}))
	t, err := transport.New(&pinged)
	if err != nil {
		return nil, fmt.Errorf("configuring the connection to %s: %w", host, err)
	}
	return &Client{http: http.Client{Transport: t}, host: host}, nil
}

// InCluster returns a client with the credentials of the pod's ServiceAccount, and an error
// outside of a pod.
func InCluster(userAgent string) (*Client, error) { return inCluster(userAgent, serviceAccountDir) }

// inCluster is like InCluster, with the credentials in a directory.
func inCluster(userAgent, dir string) (*Client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be set, as in every pod")
	}
	return New("https://"+net.JoinHostPort(host, port), &transport.Config{
		UserAgent:       userAgent,
		BearerTokenFile: filepath.Join(dir, "token"),
		TLS:             transport.TLSConfig{CAFile: filepath.Join(dir, "ca.crt"), ReloadCAFiles: true},
	})
}

// Patch patches the object at a path, such as /api/v1/nodes/a.
func (c *Client) Patch(ctx context.Context, path string, kind types.PatchType, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := c.do(ctx, http.MethodPatch, path, nil, string(kind), patch)
	if err != nil {
		return err
	}
	// The connection can be used again only if the response has been read.
	_, err = io.Copy(io.Discard, body)
	return errors.Join(err, body.Close())
}

// do sends a request, and returns the body of the response, which the caller must close.
// Responses that are no success are errors.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, contentType string, content []byte) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.host+path+"?"+query.Encode(), bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 2 {
		return response.Body, nil
	}
	defer response.Body.Close()
	return nil, statusOf(response)
}

// StatusError is an error that the API server has returned.
type StatusError struct {
	// Code is the HTTP status code.
	Code int `json:"code"`
	// Reason is the API server's reason, if it sent one.
	Reason string `json:"reason"`
	// Message is the API server's message or, if it sent none, what it sent.
	Message string `json:"message"`
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the API server answered %d (%s): %s", e.Code, http.StatusText(e.Code), e.Message)
}

// statusOf returns the error that a response contains.
func statusOf(response *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxStatus)) // what can be read is for the message only
	return parseStatus(response.StatusCode, body)
}

// parseStatus parses an object of the kind Status. If it is something else, the error has the
// given code.
func parseStatus(code int, raw []byte) error {
	var status struct {
		Kind string `json:"kind"`
		StatusError
	}
	if json.Unmarshal(raw, &status) == nil && status.Kind == "Status" && status.Code != 0 {
		return &status.StatusError
	}
	return &StatusError{Code: code, Message: string(raw)}
}
