package folder

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	ndsv1 "github.com/countersign-dev/countersign/proto/istio/networking/nds/v1"
)

const maxHostName = 253

// table parses hosts.
func (p parser) table(tree any) error {
	hosts, ok := tree.(map[string]any)
	if !ok {
		return faultf("unexpected %s; write host names, with \"ips:\" below each", shown(tree))
	}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		if err := p.host(name, hosts[name]); err != nil {
			return at(name, err)
		}
	}
	return nil
}

func notOfAHost(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._*", r)
}

func (p parser) host(name string, tree any) error {
	info := &ndsv1.NameTable_NameInfo{}
	if err := fill(info, tree); err != nil {
		return err
	}
	if p.hosts[name] != nil {
		return faultf("duplicate host in this file")
	}
	if name == "" || len(name) > maxHostName || strings.HasSuffix(name, ".") || strings.ContainsFunc(name, notOfAHost) {
		return faultf("not a host name; write one like db.example.org, %d bytes at most", maxHostName)
	}
	if len(info.GetIps()) == 0 {
		return at("ips", faultf("write one or more addresses of the host"))
	}
	for i, ip := range info.GetIps() {
		if addr, err := netip.ParseAddr(ip); err != nil || addr.Zone() != "" {
			return at("ips", at(index(i), faultf("%.256q is not an IP address", ip)))
		}
	}
	r, err := marshal(name, info)
	if err == nil {
		p.hosts[name], p.versions[key{NameTableURL, name}] = info, r.Version
	}
	return err
}
