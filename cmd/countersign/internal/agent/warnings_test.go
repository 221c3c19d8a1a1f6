package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
)

func TestAgentWithoutStateIsWarnedOfCAsThatBillOrLimit(t *testing.T) {
	const (
		state   = "state: {dir: /var/lib/countersign/state, key_file: /etc/countersign/state.key}\n"
		outputs = "outputs: [{name: web, folder: certs}]\n"
		noKey   = "outputs: [{name: web, folder: certs, files: [{name: chain.pem, content: chain}]}]\n"
		away    = "outputs: [{name: web, folder: certs, owner: '65533', files: [{name: key.p12, content: pkcs12}]}]\n"
		two     = "secrets: [{name: default, dns_names: [a.example.org]}, {name: b, dns_names: [b.example.org]}]\n"
	)
	for text, warns := range map[string]bool{
		"providers: [{name: acme}]": true, "providers: [{name: google}]": true,
		"providers: [{name: mine, provider: aws}]": true,
		"providers: [{name: file}]":                false, "providers: [{name: acme, provider: file}]": false,
		state + "providers: [{name: acme}]": false,
		// Its key is read back.
		outputs + "providers: [{name: acme}]":       false,
		noKey + "providers: [{name: acme}]":         true,
		away + "providers: [{name: acme}]":          true, // a keystore of another user is not opened
		two + outputs + "providers: [{name: acme}]": true,
	} {
		if !strings.Contains(text, "secrets") {
			text = "secrets: [{name: default, dns_names: [a.example.org]}]\n" + text
		}
		c, _, err := config.Read(config.Input{File: []byte(text), FileName: "c.yaml"})
		c.Dev = true
		if err := errors.Join(err, c.Complete()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(Warnings(nil, c), "\n"); strings.Contains(got, "state is not set") != warns {
			t.Errorf("%s: %q", text, got)
		}
	}
}
