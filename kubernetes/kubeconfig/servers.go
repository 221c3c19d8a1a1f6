package kubeconfig

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// servers is the list of allowed servers.
type servers struct {
	any      bool // there is no list
	names    []string
	networks []netip.Prefix
}

func parseServers(list []string) (servers, error) {
	s := servers{any: len(list) == 0}
	for _, text := range list {
		if network, ok := parseNetwork(text); ok {
			s.networks = append(s.networks, network)
			continue
		}
		if !isHost(strings.TrimPrefix(text, "*.")) {
			return servers{}, fmt.Errorf("invalid server %.256q: must be a host (api.example.org), subdomains (*.example.org), an address or a network (10.0.0.0/8)", text)
		}
		s.names = append(s.names, fold(text))
	}
	return s, nil
}

func parseNetwork(text string) (netip.Prefix, bool) {
	if network, err := netip.ParsePrefix(text); err == nil {
		return network.Masked(), true
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), true
}

func fold(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// check validates a server's host before a connection. For an unlisted name only its
// address can decide, later; behind a proxy nothing can.
func (s servers) check(host string, proxied bool) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return s.checkAddress(addr, s.any)
	}
	if s.any || s.hasName(host) || len(s.networks) > 0 && !proxied {
		return nil
	}
	return fmt.Errorf("server %.256q is not an allowed server", host)
}

func (s servers) hasName(host string) bool {
	host = fold(host)
	for _, name := range s.names {
		if below, wild := strings.CutPrefix(name, "*"); name == host || wild && strings.HasSuffix(host, below) {
			return true
		}
	}
	return false
}

// checkAddress validates an address; lists do not apply if the name is allowed.
func (s servers) checkAddress(addr netip.Addr, allowed bool) error {
	addr = addr.Unmap()
	for _, network := range s.networks {
		if network.Contains(addr) {
			return nil
		}
	}
	if nowhere(addr) {
		return fmt.Errorf("server address %s cannot be a cluster: it is link-local, multicast, unspecified or a cloud metadata address", addr)
	}
	if !allowed {
		return fmt.Errorf("server address %s is not allowed", addr)
	}
	return nil
}

// metadata lists cloud metadata addresses that are not link-local: of AWS, Google Cloud,
// Oracle, Azure (the wire server) and Alibaba.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("fd00:c1::a9fe:a9fe"),
	netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("100.100.100.200"),
}

// nat64 is the prefix whose addresses end in an IPv4 address (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func nowhere(addr netip.Addr) bool {
	if nat64.Contains(addr) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() || slices.Contains(metadata, addr)
}

// dialer checks each address when it connects: name resolution may change.
func (s servers) dialer(host string, proxied bool) *net.Dialer {
	allowed := s.any || s.hasName(host) || proxied // the proxy itself was allowed
	return &net.Dialer{
		Timeout:   10 * time.Second,
		KeepAlive: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("server address: %w", err)
			}
			return s.checkAddress(to.Addr().WithZone(""), allowed)
		},
	}
}
