// Package kubeconfig parses untrusted kubeconfigs for package fleet: [Parse] returns a
// *rest.Config if the kubeconfig contains only inline data and an allowed server. Every
// field that could reach our files, programs or other servers is rejected by name
// unless [Rules] allow it.
package kubeconfig

import (
	"fmt"
	"slices"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Rules say what a kubeconfig may contain. The zero value allows only inline data, and
// every server except those that cannot be clusters (cloud metadata addresses).
type Rules struct {
	// Allow names fields that are allowed although they are not inline data: see
	// [Fields].
	Allow []string
	// Servers lists the allowed servers: host names ("api.example.org"), subdomains
	// ("*.example.org"), addresses and networks ("10.0.0.0/8"). An unlisted name is
	// allowed if it resolves to a listed network. Default: all.
	Servers []string
}

// plainHTTP allows a server without TLS; a kubeconfig has no field for it.
const plainHTTP = "http"

// field is a rejected field and the reason.
type field struct {
	name, fault string
	set         func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) bool
}

const (
	reads = "would have us read a file: inline data only is taken"
	acts  = "would have us act as somebody else"
)

var fields = []field{
	{"certificate-authority", reads, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) bool { return c.CertificateAuthority != "" }},
	{"insecure-skip-tls-verify", "would take any server for the cluster's", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) bool { return c.InsecureSkipTLSVerify }},
	{"proxy-url", "would send all that is asked to a server of its choice", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) bool { return c.ProxyURL != "" }},
	{"client-certificate", reads, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.ClientCertificate != "" }},
	{"client-key", reads, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.ClientKey != "" }},
	{"tokenFile", reads, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.TokenFile != "" }},
	{"exec", "would have us run a program", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.Exec != nil }},
	{"auth-provider", "would have us run code of a plugin", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.AuthProvider != nil }},
	{"as", acts, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.Impersonate != "" }},
	{"as-uid", acts, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.ImpersonateUID != "" }},
	{"as-groups", acts, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return len(u.ImpersonateGroups) > 0 }},
	{"as-user-extra", acts, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return len(u.ImpersonateUserExtra) > 0 }},
	{"username", "is a credential that API servers no longer take: a token or a certificate is right", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.Username != "" }},
	{"password", "is a credential that API servers no longer take: a token or a certificate is right", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.Password != "" }},
}

// Fields returns the names [Rules].Allow accepts: kubeconfig fields as spelled there,
// and "http" for a server without TLS.
func Fields() []string {
	names := []string{plainHTTP}
	for _, f := range fields {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

// Check returns an error if the rules are invalid.
func (r Rules) Check() error {
	for _, name := range r.Allow {
		if !slices.Contains(Fields(), name) {
			return fmt.Errorf("a kubeconfig's field %.64q cannot be allowed: one of %s is right", name, strings.Join(Fields(), ", "))
		}
	}
	_, err := parseServers(r.Servers)
	return err
}

func (r Rules) allows(name string) bool { return slices.Contains(r.Allow, name) }

// checkFields rejects everything but inline data.
func (r Rules) checkFields(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) error {
	for _, f := range fields {
		if f.set(c, u) && !r.allows(f.name) {
			return fmt.Errorf("it has the field %q, which %s", f.name, f.fault)
		}
	}
	return nil
}
