// SPDX-License-Identifier: Apache-2.0

// Package node tests nodegate with a real kubelet and containerd, on machines that lose
// power, reboot and shut down.
package node
