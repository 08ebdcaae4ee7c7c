// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// configureNetwork sets the host name and the address of the machine, and forwards
// connections to the API server.
func (s *spec) configureNetwork() error {
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	for _, address := range []struct{ device, ip string }{{"lo", "127.0.0.1"}, {"lo:1", s.Address}} {
		if err := setAddress(socket, address.device, address.ip); err != nil {
			return fmt.Errorf("device %s: %w", address.device, err)
		}
	}
	listener, err := net.Listen("tcp", s.APIServer)
	if err != nil {
		return err
	}
	go newLink(listener, "unix", filepath.Join("/", linkDir, apiSocket)).serve()
	return nil
}

// setAddress gives a network device an address, and activates it.
func setAddress(socket int, device, ip string) error {
	request, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	address := netip.MustParseAddr(ip).As4()
	if err := request.SetInet4Addr(address[:]); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFADDR, request); err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}
