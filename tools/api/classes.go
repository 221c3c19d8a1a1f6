package main

import (
	"fmt"
	"slices"
)

// class is what is promised of a package; docs/versioning.md and docs/embed.md explain each.
type class string

const (
	embedders    class = "stable: for embedders"
	authors      class = "stable: for authors of providers"
	experimental class = "experimental"
	programs     class = "for Countersign's own programs"
)

// classes has each public package once. A stable package shows types of stable packages alone,
// except in fields whose comment calls them experimental.
var classes = map[string]class{
	"plugin-host":                 embedders,
	"plugin-host/lock":            embedders,
	"sdk/agent":                   embedders,
	"sdk/ca":                      embedders,
	"sdk/catest":                  embedders,
	"sdk/controlplane":            embedders,
	"sdk/filesecret":              embedders,
	"sdk/pki":                     embedders,
	"sdk/sds":                     embedders,
	"sdk/secret":                  embedders,
	"sdk/spiresecret":             embedders,
	"sdk/tlsconfig":               embedders,
	"sdk/tlsconfig/grpccreds":     embedders,
	"sdk/tlsconfig/certprovider":  experimental,
	"sdk/tlsconfig/httptransport": embedders,
	"sdk/token":                   embedders,
	"sdk/trace":                   embedders,
	"sdk/unixpeer":                embedders,
	"sdk/workloadapi":             embedders,
	"sdk/xds":                     embedders,

	"sdk/catest/conformance": authors,
	"sdk/provider":           authors,
	"sdk/provider/chain":     authors,
	"sdk/provider/filewatch": authors,
	"sdk/provider/rest":      authors,
	"sdk/provider/setting":   authors,
	"sdk/provider/testkit":   authors,
	"sdk/provider/wire":      authors,

	"discovery":              experimental,
	"discovery/folder":       experimental,
	"discovery/hub":          experimental,
	"ra":                     experimental,
	"sdk/authn":              experimental,
	"sdk/authn/federation":   experimental,
	"sdk/authn/jwt":          experimental,
	"sdk/authn/tokenreview":  experimental,
	"sdk/gateway":            experimental,
	"sdk/identities":         experimental,
	"sdk/broker":             experimental,
	"sdk/broker/pods":        experimental,
	"sdk/jwtsvid":            experimental,
	"sdk/keysource/pkcs11":   experimental,
	"sdk/kubeapi":            experimental,
	"sdk/ondemand":           experimental,
	"sdk/ondemand/ask":       experimental,
	"sdk/ondemand/budget":    experimental,
	"sdk/ondemand/kubestore": experimental,
	"sdk/ondemand/names":     experimental,
	"sdk/revocation":         experimental,
	"sdk/state":              experimental,
	"sdk/token/exchange":     experimental,
	"sdk/witsvid":            experimental,

	"plugin-host/debugger":     programs,
	"plugin-host/providertest": programs,
	"ra/share":                 programs,
	"sdk/languages":            programs,
}

// checkClasses fails for a package without a class and for a class without a package.
func checkClasses(public []string) error {
	for _, name := range public {
		if classes[name] == "" {
			return fmt.Errorf("%s has no class: add it to tools/api/classes.go, or move it below internal", name)
		}
	}
	for name := range classes {
		if !slices.Contains(public, name) {
			return fmt.Errorf("%s is in tools/api/classes.go and not in the tree", name)
		}
	}
	return nil
}
