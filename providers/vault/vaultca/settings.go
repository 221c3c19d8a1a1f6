// Package vaultca is a client of the PKI secrets engine of HashiCorp Vault and OpenBao as a
// [ca.Client] and [ca.RootSource]. It calls the server with a given token, or logs in and
// keeps the session renewed. countersign-provider-vault serves it as a process; call [Open]
// to use it in another program.
//
// It has no goroutine of its own: sessions are renewed by the call that finds them due.
package vaultca

import (
	"cmp"
	"log/slog"
	"regexp"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// Settings say where the server is, how to verify it, which role signs and how to log in.
// The fields with a JSON name are the provider's settings.
type Settings struct {
	// URL is https://host[:port]. Required.
	URL setting.URL `json:"url" address:"url" jsonschema:"URL of the server, https://host:port"`
	// TLS verifies the server, and has a client certificate for all calls.
	setting.TLS
	// Namespace is a namespace of Vault Enterprise or OpenBao. Default: the root namespace.
	Namespace string `json:"namespace,omitempty" jsonschema:"namespace of all calls (default the root namespace)"`

	// Mount is the path of the PKI engine. Default: pki.
	Mount string `json:"mount,omitempty" jsonschema:"path where the PKI engine is mounted (default pki)"`
	// Role is the role that signs. Required unless Verbatim is set.
	Role string `json:"role,omitempty" jsonschema:"role that signs; required unless verbatim"`
	// Verbatim uses sign-verbatim, which signs the CSR as it is. Default: false.
	Verbatim bool `json:"verbatim,omitempty" jsonschema:"sign the CSR as it is (sign-verbatim), within the limits of role if that is set (default false)"`
	// BundleFile is a PEM file with the roots of the certificates, for an engine without a
	// self-signed issuer. Default: the engine's self-signed issuers.
	BundleFile setting.Certificates `json:"bundle_file,omitempty" jsonschema:"PEM file with the roots of the certificates, read for each use, or the PEM text, for an engine without a self-signed issuer (default the engine's self-signed issuers)"`

	// Login configures how to get a token.
	Login Login `json:"login,omitzero" jsonschema:"how to log in (default: call the server with the token of each request)"`

	// Log gets warnings and debug records. Default: none.
	Log *slog.Logger `json:"-"`
}

// Method is a way to log in.
type Method string

// The login methods.
const (
	Token      Method = "token"      // a given token
	AppRole    Method = "approle"    // a role ID and a secret ID
	Kubernetes Method = "kubernetes" // the JWT of a Kubernetes service account
	Cert       Method = "cert"       // the client certificate
)

// Login configures how to get a token. The zero value uses the token of each request.
type Login struct {
	// Method is the login method. Default: [Token].
	Method Method `json:"method,omitempty" jsonschema:"token, approle, kubernetes or cert (default token)"`
	// Mount is the path of the auth method. Default: its name.
	Mount string `json:"mount,omitempty" jsonschema:"path where the auth method is mounted (default its name)"`
	// TokenFile holds a token of the server ([Token]) or the JWT of a service account
	// ([Kubernetes]). It is read for each use. Default: the token of the request.
	TokenFile setting.File `json:"token_file,omitempty" jsonschema:"file with the token (token) or the JWT (kubernetes), read for each use (default the request's token)"`
	// Role is the role to log in as: required with [Kubernetes], optional with [Cert].
	Role string `json:"role,omitempty" jsonschema:"role to log in as (kubernetes, cert)"`
	// RoleID and SecretIDFile are required with [AppRole].
	RoleID       string       `json:"role_id,omitempty" jsonschema:"role id (approle)"`
	SecretIDFile setting.File `json:"secret_id_file,omitempty" jsonschema:"file with the secret id (approle), read for each login"`
}

// segment is one part of a path on the server. It does not begin with a dot, as ".." would
// lead elsewhere.
var (
	segment = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]*$`)
	path    = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$`)
)

const (
	segmentWords = "letters, digits, '-', '_' and '.'"
	pathWords    = segmentWords + ", with '/' between"
)

// Validate checks what the types of the settings do not, without access to files or the
// network; [Open] checks all. The error has the reason [ca.Invalid].
func (s Settings) Validate() error {
	if err := s.URL.CheckSetting(""); err != nil {
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
			return ca.Errorf(ca.Invalid, "%s is %q: want %s", one.name, one.value, one.wants)
		}
	}
	if s.Role == "" && !s.Verbatim {
		return ca.Errorf(ca.Invalid, "role is not set: name the role that signs, or set verbatim")
	}
	return s.checkLogin()
}

func (s Settings) checkLogin() error {
	l := s.Login
	switch l.method() {
	case Token, Kubernetes, AppRole, Cert:
	default:
		return ca.Errorf(ca.Invalid, "login.method is %q: want token, approle, kubernetes or cert", l.Method)
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
		return ca.Errorf(ca.Invalid, "login.mount is %q, but method token does not log in: set login.method", l.Mount)
	}
	return nil
}

func (l Login) method() Method {
	return cmp.Or(l.Method, Token)
}

func (l Login) path() string {
	mount := cmp.Or(l.Mount, string(l.method()))
	return "/v1/auth/" + mount + "/login"
}

func (s Settings) mount() string {
	return cmp.Or(s.Mount, "pki")
}

// signPath returns the path that signs.
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
