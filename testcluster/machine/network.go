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
	service := netip.MustParseAddrPort(s.Service).Addr().String()
	for _, address := range []struct{ device, prefix string }{{"lo", "127.0.0.1/8"}, {"lo:1", s.Address + "/32"}, {"lo:2", service + "/32"}} {
		if err := setAddress(socket, address.device, netip.MustParsePrefix(address.prefix)); err != nil {
			return fmt.Errorf("device %s: %w", address.device, err)
		}
	}
	for _, address := range []string{s.APIServer, s.Service} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go newLink(listener, "unix", filepath.Join("/", linkDir, apiSocket)).serve()
	}
	return nil
}

// setAddress gives a network device an address and its mask, and activates it. The kernel's
// default mask would make the addresses of pods local ones.
func setAddress(socket int, device string, prefix netip.Prefix) error {
	request, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	for _, set := range []struct {
		operation uint
		value     []byte
	}{{unix.SIOCSIFADDR, prefix.Addr().AsSlice()}, {unix.SIOCSIFNETMASK, net.CIDRMask(prefix.Bits(), 32)}} {
		if err := request.SetInet4Addr(set.value); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, set.operation, request); err != nil {
			return err
		}
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}
