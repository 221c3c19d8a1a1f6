package vaultca

import (
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestWrongSettingsAreNamed(t *testing.T) {
	good := Settings{URL: urlOf("https://vault:8200"), Role: "web", Namespace: "a/b", Mount: "pki/int"}
	must(t, good.Validate())
	for says, change := range map[string]func(*Settings){
		"it takes https://host":         func(s *Settings) { s.URL = urlOf("http://vault:8200") },
		"url: it takes https://host":    func(s *Settings) { s.URL = urlOf("https://me:secret@vault") },
		`mount is "../sys"`:             func(s *Settings) { s.Mount = "../sys" },
		`mount is "pki/"`:               func(s *Settings) { s.Mount = "pki/" },
		`mount is "pki?x"`:              func(s *Settings) { s.Mount = "pki?x" },
		`role is "a/b"`:                 func(s *Settings) { s.Role = "a/b" },
		`role is ".."`:                  func(s *Settings) { s.Role = ".." },
		`namespace is "a\nb"`:           func(s *Settings) { s.Namespace = "a\nb" },
		"role is not set":               func(s *Settings) { s.Role = "" },
		"client_key_file is \"\"":       func(s *Settings) { s.ClientCertFile = "x" },
		`login.method is "ldap"`:        func(s *Settings) { s.Login.Method = "ldap" },
		"login.role is not set":         func(s *Settings) { s.Login.Method = Kubernetes },
		"approle needs both":            func(s *Settings) { s.Login = Login{Method: AppRole, RoleID: "x"} },
		"client_cert_file is not set":   func(s *Settings) { s.Login.Method = Cert },
		"login.secret_id_file are for":  func(s *Settings) { s.Login.SecretIDFile = "x" },
		"login.role is for kubernetes":  func(s *Settings) { s.Login.Role = "x" },
		"login.mount is \"x\"":          func(s *Settings) { s.Login.Mount = "x" },
		"login.token_file is for token": func(s *Settings) { s.Login = Login{Method: AppRole, RoleID: "x", SecretIDFile: "x", TokenFile: "x"} },
		`login.mount is "a//b": want`:   func(s *Settings) { s.Login = Login{Method: Kubernetes, Role: "x", Mount: "a//b"} },
	} {
		s := good
		change(&s)
		_, err := Open(s)
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", says, err)
		}
	}
}
