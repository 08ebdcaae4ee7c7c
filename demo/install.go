// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/cluster"
)

const (
	programPackage    = "github.com/nodegate/nodegate/cmd/nodegate"
	nodegateNamespace = "nodegate-system"

	// readyLimit is how long anything that takes a moment may take.
	readyLimit = 30 * time.Second
)

// An installation is nodegate in a cluster.
type installation struct {
	program        string // the nodegate program
	allowedKeys    []string
	serviceAccount types.NamespacedName // what nodegate runs as
}

// username is what the API server calls nodegate.
func (i *installation) username() string {
	return "system:serviceaccount:" + i.serviceAccount.Namespace + ":" + i.serviceAccount.Name
}

// buildProgram builds nodegate from this source tree.
func buildProgram(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "nodegate")
	output, err := exec.CommandContext(ctx, "go", "build", "-o", program, programPackage).CombinedOutput()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("building nodegate: %w:\n%s", err, bytes.TrimSpace(output))
	}
	return program, nil
}

// install applies what 'nodegate manifests' prints.
func install(ctx context.Context, a *applier, program string, gates []gate) (*installation, error) {
	i := &installation{program: program}
	for _, g := range gates {
		i.allowedKeys = append(i.allowedKeys, g.taint.Key)
	}
	stream, err := i.manifests(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := parseObjects(stream)
	if err != nil {
		return nil, fmt.Errorf("reading nodegate's manifests: %w", err)
	}
	for _, object := range objects {
		if object.GetKind() == "ServiceAccount" {
			i.serviceAccount = types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
		}
	}
	if i.serviceAccount.Name == "" {
		return nil, errors.New("reading nodegate's manifests: there is no ServiceAccount")
	}
	if err := a.apply(ctx, objects...); err != nil {
		return nil, fmt.Errorf("installing nodegate: %w", err)
	}
	return i, nil
}

func (i *installation) manifests(ctx context.Context) ([]byte, error) {
	command := exec.CommandContext(ctx, i.program, "manifests",
		"--namespace", nodegateNamespace, "--allowed-taint-keys", strings.Join(i.allowedKeys, ","))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stream, err := command.Output()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("running nodegate manifests: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stream, nil
}

// awaitGates waits until nodegate says that its gates are ready, which
// includes that nodes are closed at birth, and then sees for itself.
func awaitGates(ctx context.Context, c *cluster.Cluster, a *applier, gates []gate) error {
	for _, g := range gates {
		if err := await(ctx, "gate "+g.name, readyLimit, func(ctx context.Context) error {
			ng, err := getGate(ctx, a, g.name)
			if err != nil {
				return err
			}
			return gateReady(ng)
		}); err != nil {
			return err
		}
	}
	return awaitBirthClosed(ctx, c, gates)
}

func getGate(ctx context.Context, a *applier, name string) (*v1alpha1.NodeGate, error) {
	object, err := a.client.Resource(v1alpha1.Resource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading gate %s: %w", name, err)
	}
	var ng v1alpha1.NodeGate
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &ng); err != nil {
		return nil, fmt.Errorf("reading gate %s: %w", name, err)
	}
	return &ng, nil
}

func gateReady(ng *v1alpha1.NodeGate) error {
	c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return errors.New("it has no Ready condition: nodegate has not looked at it")
	case c.ObservedGeneration != 0 && c.ObservedGeneration != ng.Generation:
		return errNotYet
	case c.Status != metav1.ConditionTrue:
		return fmt.Errorf("%s: %s", c.Reason, c.Message)
	}
	return nil
}

// awaitBirthClosed creates a Node in a dry run, as a kubelet would create it.
// Nothing but the API server's answer proves that nodes are closed at birth.
func awaitBirthClosed(ctx context.Context, c *cluster.Cluster, gates []gate) error {
	const name = "demo-dry-run"
	kubelet, err := kubernetes.NewForConfig(c.Node(name))
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	return await(ctx, "new nodes to be closed", readyLimit, func(ctx context.Context) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node, err := kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return fmt.Errorf("creating a node in a dry run: %w", err)
		}
		i := slices.IndexFunc(gates, func(g gate) bool { return !hasTaint(node, g.taint) })
		if i >= 0 {
			return fmt.Errorf("the API server created a node, in a dry run, without the taint of gate %s", gates[i].name)
		}
		return nil
	})
}
