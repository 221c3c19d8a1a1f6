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
	reads = "it reads a local file; use inline data"
	acts  = "it impersonates another user"
)

var fields = []field{
	{"certificate-authority", reads, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) bool { return c.CertificateAuthority != "" }},
	{"insecure-skip-tls-verify", "it accepts any server certificate", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) bool { return c.InsecureSkipTLSVerify }},
	{"proxy-url", "it sends all requests to another server", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) bool { return c.ProxyURL != "" }},
	{"client-certificate", reads, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.ClientCertificate != "" }},
	{"client-key", reads, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.ClientKey != "" }},
	{"tokenFile", reads, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.TokenFile != "" }},
	{"exec", "it runs a program", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.Exec != nil }},
	{"auth-provider", "it runs plugin code", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.AuthProvider != nil }},
	{"as", acts, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.Impersonate != "" }},
	{"as-uid", acts, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.ImpersonateUID != "" }},
	{"as-groups", acts, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return len(u.ImpersonateGroups) > 0 }},
	{"as-user-extra", acts, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return len(u.ImpersonateUserExtra) > 0 }},
	{"username", "API servers no longer support passwords; use a token or a certificate", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.Username != "" }},
	{"password", "API servers no longer support passwords; use a token or a certificate", func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) bool { return u.Password != "" }},
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
			return fmt.Errorf("unknown kubeconfig field %.64q: must be one of %s", name, strings.Join(Fields(), ", "))
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
			return fmt.Errorf("field %q is not allowed: %s", f.name, f.fault)
		}
	}
	return nil
}
