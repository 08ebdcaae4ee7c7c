// SPDX-License-Identifier: Apache-2.0

// Package machine runs machines with a real kubelet and containerd, which can lose power
// at any moment.
//
// A machine is a process tree in namespaces of its own (PID, mount, network), with a root
// file system of its own. Its PID 1 is this program (see Init), which starts containerd
// and the kubelet and restarts them when they end. The kernel kills all processes in a PID
// namespace together with its PID 1, and unmounts what only they had mounted, so killing
// PID 1 is a power cut: nothing can react to it, and no process or mount remains. What the
// machine has on its disk, a directory, is there when it is powered on again; /run, /tmp
// and the boot ID are new.
//
// The network namespace has a loopback interface, with an address for the node, and the bridge
// of its pods. A forwarder connects the address of the API server with the real one, and so
// does one for the address of the Service "kubernetes", as kube-proxy would: pods need nothing
// else of it, and a kube-proxy would need iptables or nftables on the host.
package machine
