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

func TestDocumentListsEveryCheck(t *testing.T) {
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

const preface = `# The conformance suite

<!-- Written by the tests of plugin-host/providertest: go test -run TestDocumentListsEveryCheck -update . -->

One suite tests every provider, in whatever language it is written. On a binary, under the host that
runs it for agents:

` + "```" + `
countersign provider test ./countersign-provider-NAME --kit kit.yaml
` + "```" + `

Exit status 0: all checks that ran passed; 1: one failed; 2: nothing could be run. ` + "`-o json` and\n`-o junit`" + ` are for programs; ` + "`--level` and `--only`" + ` choose checks.

In the tests of a provider in Go, as a value and over the boundary in memory, with a subtest for
each check:

` + "```go" + `
func TestConformance(t *testing.T) {
	kit, err := conformance.LoadKit("kit.yaml")
	if err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, kit, provider.Define("acme", "1.0.0", open).Provider)
}
` + "```" + `

A check that cannot decide is reported as not run, with the reason: a missing ability, a
value has no process, a process does not show how long a cancelled call keeps running, a check that
it builds on failed, or the kit file lacks what only the author can give. Everything in that file is
optional; paths are relative to its folder. One fault fails one check: what could not be checked
because of it is not run either. ` + "`countersign provider kit BINARY > kit.yaml`" + ` writes a file
with all settings of a provider; what it requires is ` + "`FILL-IN`" + ` there, which no test takes.
A check that fails while the machine stands still is run again, three times at most.

` + "```yaml" + `
# Valid settings. A secret one may be a reference, as in an agent's configuration: {file: PATH},
# {env: NAME} or {command: [PROGRAM, ARG]}.
settings: {address: ca.example.org, password: {file: password.txt}}
wrong_settings: {address: ""}         # refused by the author's own validation
identity: {spiffe_id: "spiffe://example.org/web", dns_names: [web.example.org], ip_addresses: [192.0.2.1]}
refused_identity: {spiffe_id: "spiffe://stranger.test/web"}
name_check: exact                     # or trust-domain, or any: how closely the names must match
keys: [ecdsa-p256, rsa-2048]          # key types to request
ttl: 1h                               # lifetime to request
fixed_lifetime: false                 # true: the CA decides the lifetime
token_file: token                     # a valid token; without it, one is made up
refused_token_file: expired-token     # an invalid token
token_required: true                  # nothing is signed without a token
token_ignored: false                  # true: the CA ignores tokens
exchange: {subject_token_file: subject, audience: ca}
refused_subject_token_file: stranger
abilities_off: [token-exchanger]      # declared, but turned off by these settings
call_timeout: 10s                     # for one call, and for a start
env: {AWS_REGION: eu-central-1}       # for the process
` + "```" + `

Some rules cannot be observed of a process. gRPC ends a cancelled call on the caller's side at once,
whatever the provider does, so it is hidden whether its code still runs (FAULT-02, WATCH-06), what
it would answer after the deadline (FAULT-03), or that its messages are not read (WATCH-10); and a
process never sees the memory of its caller (SIGN-26, SIGN-27). They run in ` + "`go test`" + `, where the
provider is a value; of a process they are not run. What a stuck call can do there is bounded:
PROC-13 and PROC-14 demand that the process exits whatever is in flight.

For each rule below, the tests have a provider that breaks it and fails that check alone; they name
the few rules that cannot be broken alone.
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
