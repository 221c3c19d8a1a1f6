// Package vaultca signs by the PKI secrets engine of HashiCorp Vault and OpenBao, with
// a token at hand or one that it logs in for.
package vaultca

import (
	"log/slog"
	"regexp"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// Settings say where the server is, how it is verified, which role signs and how to
// log in. The fields with a JSON name are the provider's settings.
type Settings struct {
	// URL is https://host[:port].
	URL string `json:"url" jsonschema:"where the server is: https://host:port"`
	// RootFile verifies the server. Default: the operating system's roots.
	RootFile string `json:"root_file,omitempty" jsonschema:"PEM file with the roots to verify the server with, or SYSTEM for the operating system's (default SYSTEM)"`
	// ServerName is what its certificate must name. Default: the host of URL.
	ServerName string `json:"server_name,omitempty" jsonschema:"name that the server's certificate must have (default the host of url)"`
	// Namespace is that of Vault Enterprise, or OpenBao. Default: the root one.
	Namespace string `json:"namespace,omitempty" jsonschema:"namespace of all calls (default the root namespace)"`

	// Mount is the path of the PKI engine. Default: pki.
	Mount string `json:"mount,omitempty" jsonschema:"path where the PKI engine is mounted (default pki)"`
	// Role signs.
	Role string `json:"role,omitempty" jsonschema:"role that signs; required unless verbatim"`
	// Verbatim asks sign-verbatim: the CSR is signed as it is. Default: false.
	Verbatim bool `json:"verbatim,omitempty" jsonschema:"have the CSR signed as it is (sign-verbatim), with what role bounds where it is set (default false)"`
	// BundleFile holds the roots that certificates lead to, where the engine has none
	// that is self-signed. Default: those of the engine.
	BundleFile string `json:"bundle_file,omitempty" jsonschema:"PEM file with the roots that certificates lead to, where the engine holds no self-signed issuer (default the engine's self-signed issuers)"`

	// Login is how to get a token.
	Login Login `json:"login,omitzero" jsonschema:"how to log in (default: the token of each request is the server's)"`

	// ClientCertFile and ClientKeyFile are shown in each call. Default: none.
	ClientCertFile string `json:"client_cert_file,omitempty" jsonschema:"PEM file with a client certificate, read for each call (default none)"`
	ClientKeyFile  string `json:"client_key_file,omitempty" jsonschema:"PEM file with the client certificate's key (default none)"`

	// Log takes what is found while the server is used. Default: silent.
	Log *slog.Logger `json:"-"`
}

// Method is a way to log in.
type Method string

// The ways.
const (
	Token      Method = "token"      // a token at hand
	AppRole    Method = "approle"    // a role's id and secret
	Kubernetes Method = "kubernetes" // the JWT of a service account
	Cert       Method = "cert"       // the client certificate
)

// Login says how to get a token, and from where.
type Login struct {
	// Method is how. Default: [Token].
	Method Method `json:"method,omitempty" jsonschema:"token, approle, kubernetes or cert (default token)"`
	// Mount is the path of the auth method. Default: its name.
	Mount string `json:"mount,omitempty" jsonschema:"path where the auth method is mounted (default its name)"`
	// TokenFile holds the server's token ([Token]) or the service account's
	// ([Kubernetes]). It is read for each use. Default: the token of the request.
	TokenFile string `json:"token_file,omitempty" jsonschema:"file with the token (token) or the JWT (kubernetes), read for each use (default the request's token)"`
	// Role is that of [Kubernetes], or the certificate's of [Cert], where it may be empty.
	Role string `json:"role,omitempty" jsonschema:"role to log in as (kubernetes, cert)"`
	// RoleID and SecretIDFile are those of [AppRole].
	RoleID       string `json:"role_id,omitempty" jsonschema:"role id (approle)"`
	SecretIDFile string `json:"secret_id_file,omitempty" jsonschema:"file with the secret id (approle), read for each login"`
}

// segment is a part of a path of the server: dots alone would lead elsewhere.
var (
	segment = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]*$`)
	path    = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$`)
)

const (
	segmentWords = "letters, digits, '-', '_' and '.'"
	pathWords    = segmentWords + ", with '/' between"
)

// Validate checks the settings without looking at a file or the network. The error is
// of the reason [ca.Invalid].
func (s Settings) Validate() error {
	if _, err := rest.ParseURL(s.URL); err != nil {
		return ca.Errorf(ca.Invalid, "url: %w", err)
	}
	for _, one := range []struct {
		name, value, wants string
		shape              *regexp.Regexp
	}{
		{"mount", s.Mount, pathWords, path},
		{"namespace", s.Namespace, pathWords, path},
		{"login.mount", s.Login.Mount, pathWords, path},
		{"role", s.Role, segmentWords, segment},
	} {
		if one.value != "" && !one.shape.MatchString(one.value) {
			return ca.Errorf(ca.Invalid, "%s is %q: it has to be %s", one.name, one.value, one.wants)
		}
	}
	if s.Role == "" && !s.Verbatim {
		return ca.Errorf(ca.Invalid, "role is not set: name the role that signs, or set verbatim")
	}
	if err := s.pair().Check("client_cert_file", "client_key_file"); err != nil {
		return err
	}
	return s.checkLogin()
}

func (s Settings) checkLogin() error {
	l := s.Login
	switch l.method() {
	case Token, Kubernetes, AppRole, Cert:
	default:
		return ca.Errorf(ca.Invalid, "login.method is %q: it has to be token, approle, kubernetes or cert", l.Method)
	}
	switch {
	case l.method() == Kubernetes && l.Role == "":
		return ca.Errorf(ca.Invalid, "login.role is not set: kubernetes needs the role to log in as")
	case l.method() == AppRole && (l.RoleID == "" || l.SecretIDFile == ""):
		return ca.Errorf(ca.Invalid, "login.role_id is %q and login.secret_id_file is %q: approle needs both", l.RoleID, l.SecretIDFile)
	case l.method() == Cert && s.ClientCertFile == "":
		return ca.Errorf(ca.Invalid, "client_cert_file is not set: login.method cert needs the certificate to log in with")
	case l.method() != AppRole && (l.RoleID != "" || l.SecretIDFile != ""):
		return ca.Errorf(ca.Invalid, "login.role_id and login.secret_id_file are for approle; login.method is %q", l.method())
	case l.Role != "" && l.method() != Kubernetes && l.method() != Cert:
		return ca.Errorf(ca.Invalid, "login.role is for kubernetes and cert; login.method is %q", l.method())
	case l.TokenFile != "" && l.method() != Token && l.method() != Kubernetes:
		return ca.Errorf(ca.Invalid, "login.token_file is for token and kubernetes; login.method is %q", l.method())
	case l.Mount != "" && l.method() == Token:
		return ca.Errorf(ca.Invalid, "login.mount is %q, but there is no login with a token at hand: set login.method", l.Mount)
	}
	return nil
}

func (l Login) method() Method {
	if l.Method == "" {
		return Token
	}
	return l.Method
}

func (l Login) path() string {
	mount := l.Mount
	if mount == "" {
		mount = string(l.method())
	}
	return "/v1/auth/" + mount + "/login"
}

func (s Settings) mount() string {
	if s.Mount == "" {
		return "pki"
	}
	return s.Mount
}

// signPath is what is asked for a certificate.
func (s Settings) signPath() string {
	at := "/v1/" + s.mount() + "/sign"
	if s.Verbatim {
		at += "-verbatim"
	}
	if s.Role == "" {
		return at
	}
	return at + "/" + s.Role
}

func (s Settings) pair() rest.Pair {
	return rest.Pair{CertFile: s.ClientCertFile, KeyFile: s.ClientKeyFile}
}
