package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestRevocationListsAreForROOTCAByDefault(t *testing.T) {
	if c, _ := mustLoad(t, working, nil); len(c.CRL) != 0 {
		t.Errorf("without a word there is %+v", c.CRL)
	}
	c, _ := mustLoad(t, working+`
files: {secrets: [{name: partner, roots: r}]}
crl:
  - {files: [root.pem, issuing.pem], providers: [file]}
  - {name: partner, files: [p.pem], leaf_only: true, stale: drop}
outputs: [{name: nginx, folder: f, files: [{name: crl.pem, content: crl}]}]
`, nil)
	want := []CRL{
		{Name: "ROOTCA", Files: []string{"root.pem", "issuing.pem"}, Providers: []string{"file"}, Chains: []string{"default"}, Stale: "keep"},
		{Name: "partner", Files: []string{"p.pem"}, LeafOnly: true, Stale: "drop"},
	}
	if !reflect.DeepEqual(c.CRL, want) {
		t.Errorf("got %+v", c.CRL)
	}
	if got := c.Outputs[0].Config(); got.Bundle != "ROOTCA" {
		t.Errorf("the output writes the lists of %q", got.Bundle)
	}
	if got := NeedRestart([]string{"crl", "crl.ROOTCA.files"}); len(got) != 0 {
		t.Errorf("a running agent would not take over %q", got)
	}
}

func TestWrongRevocationListsAreRefused(t *testing.T) {
	const output = "\noutputs: [{name: nginx, folder: f, files: [{name: crl.pem, content: crl}]}]"
	for file, want := range map[string]string{
		"[{}]":                                 "crl.ROOTCA.files is",
		"[{files: ['']}]":                      "crl.ROOTCA.files is",
		"[{files: [f], stale: later}]":         `crl.ROOTCA.stale is "later": must be keep or drop`,
		"[{files: [f]}, {files: [g]}]":         `crl has "ROOTCA" twice`,
		"[{name: default, files: [f]}]":        "no trust bundle of that name",
		"[{name: unknown, files: [f]}]":        "no trust bundle of that name",
		"[{files: [f], chains: [ROOTCA]}]":     "no key pair of that name",
		"[{file: f}]":                          "file",
		"[{providers: [nobody]}]":              "no provider of that name",
		"[{providers: [spire]}]":               "no provider of that name",
		"[{providers: [file, file]}]":          "it is there twice",
		"[]" + output:                          `writes the revocation lists of "ROOTCA", which has none`,
		"[{files: [f], stale: drop}]" + output: "a server does not start with an empty file",
	} {
		if _, _, err := load(working+"crl: "+file+"\n", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
}
