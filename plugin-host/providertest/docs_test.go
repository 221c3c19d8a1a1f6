package providertest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	tree "github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

var update = flag.Bool("update", false, "write docs/conformance.md anew")

func TestTheDocumentListsEveryCheck(t *testing.T) {
	want := document()
	docs := tree.File(t, "docs/conformance.md")
	if *update {
		if err := os.WriteFile(docs, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(docs); err != nil || string(got) != want {
		t.Errorf("%s is not what the checks say (%v); `go test -run %s -update .` writes it", docs, err, t.Name())
	}
}

const preface = `# The conformance kit

<!-- Made by the tests of plugin-host/providertest: go test -run TestTheDocumentListsEveryCheck -update . -->

One suite for every provider, in whatever language it is written. On a binary, under the host that runs it for agents:

` + "```" + `
countersign provider test ./countersign-provider-NAME --kit kit.yaml
` + "```" + `

Exit status 0: each check that was run passed; 1: one failed; 2: nothing could be run. ` + "`-o json` and `-o junit`" + ` are for programs, ` + "`--level` and `--only`" + ` choose.
In the tests of a provider in Go, as a value and over the boundary in memory, each check a subtest:

` + "```go" + `
func TestConformance(t *testing.T) {
	kit := conformance.Kit{Settings: map[string]any{"address": "…"}}
	conformance.Run(t, kit, provider.Define("acme", "1.0.0", open).Provider)
}
` + "```" + `

A check that cannot tell anything says why and is reported as not run: the provider has not the ability, a value has no process, a check that it builds on
failed, or the kit file lacks what only the author can give. All of that file is optional, paths are from its own folder:

` + "```yaml" + `
settings: {address: ca.example.org}   # good ones
wrong_settings: {address: ""}         # refused by the author's own check
identity: {spiffe_id: "spiffe://example.org/web", dns_names: [web.example.org], ip_addresses: [192.0.2.1]}
refused_identity: {spiffe_id: "spiffe://stranger.test/web"}
name_check: exact                     # or trust-domain, or any: how close the names of a certificate come
keys: [ecdsa-p256, rsa-2048]          # kinds of key to ask for
ttl: 1h                               # lifetime to ask for
fixed_lifetime: false                 # the authority gives what lifetime it likes
token_file: token                     # one that is taken; without it, one is made up
refused_token_file: expired-token     # one that is not
token_required: true                  # nothing is signed without one
exchange: {subject_token_file: subject, audience: ca}
refused_subject_token_file: stranger
call_timeout: 10s                     # of one call
env: {AWS_REGION: eu-central-1}       # of the process
` + "```" + `

Each rule below has a provider in the tests that breaks it, and fails that check alone; the few that cannot be broken alone are named there.
`

func document() string {
	var out strings.Builder
	out.WriteString(preface)
	for _, level := range conformance.Levels() {
		fmt.Fprintf(&out, "\n## %s\n\n| id | rule | why |\n|---|---|---|\n", level)
		for _, c := range Checks() {
			if c.Level == level {
				fmt.Fprintf(&out, "| %s | %s | %s |\n", c.ID, c.Rule, c.Why)
			}
		}
	}
	return out.String()
}
