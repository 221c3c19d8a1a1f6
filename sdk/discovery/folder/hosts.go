package folder

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/foreign"
	ndsv1 "github.com/countersign-dev/countersign/proto/istio/networking/nds/v1"
)

const maxHostName = 253

// table takes named hosts.
func (p parser) table(tree any) error {
	table := &ndsv1.NameTable{}
	if _, ok := tree.(map[string]any); !ok {
		return faultf("%s stands here; write host names, with \"ips:\" below each", shown(tree))
	}
	if err := fill(table, map[string]any{"table": tree}); err != nil {
		if f, ok := errors.AsType[*fault](err); ok && len(f.path) > 0 {
			f.path = f.path[1:] // nobody has written "table"
		}
		return err
	}
	for _, host := range slices.Sorted(maps.Keys(table.Table)) {
		if err := p.host(host, table.Table[host]); err != nil {
			return at(host, err)
		}
	}
	return nil
}

func (p parser) host(name string, info *ndsv1.NameTable_NameInfo) error {
	if p.hosts[name] != nil {
		return faultf("this host is in this file already")
	}
	if name == "" || len(name) > maxHostName || strings.HasSuffix(name, ".") || strings.ContainsAny(name, " /:") {
		return faultf("it is no host name; one is as db.example.org, of %d bytes at most", maxHostName)
	}
	if len(info.GetIps()) == 0 {
		return at("ips", faultf("write the addresses of the host, one or more"))
	}
	for i, ip := range info.GetIps() {
		if addr, err := netip.ParseAddr(ip); err != nil || addr.Zone() != "" {
			return at("ips", at(index(i), faultf("%q is no IP address", foreign.Clean(ip))))
		}
	}
	r, err := marshal(name, info)
	if err == nil {
		p.hosts[name], p.versions[key{NameTableURL, name}] = info, r.Version
	}
	return err
}
