package discovery

import (
	"net"
	"net/netip"
	"sync"
)

// occupancy limits what clients may use before they are known: in total, and by
// address, so that one client cannot keep all others out.
type occupancy struct {
	most, ofAddress int

	mu  sync.Mutex
	all int
	by  map[string]int
}

func newOccupancy(most, ofAddress int) *occupancy {
	return &occupancy{most: most, ofAddress: ofAddress, by: map[string]int{}}
}

// take occupies a place, or returns the limit that was reached. Call free once if there
// is one.
func (o *occupancy) take(host string) (free func(), limit reason) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.by[host] >= o.ofAddress:
		return nil, overAddressLimit
	case o.all >= o.most:
		return nil, overLimit
	}
	o.all++
	o.by[host]++
	return func() { o.free(host) }, ""
}

func (o *occupancy) free(host string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all--
	if o.by[host]--; o.by[host] == 0 {
		delete(o.by, host)
	}
}

// hostOf returns what counts as one address: without the port, and for IPv6 the network
// of 64 bits, as a client there chooses the other 64 bits itself.
func hostOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
