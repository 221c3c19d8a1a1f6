package status

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

var must = fatal.If

func TestStateThatCannotBeKeptIsShownUntilItCan(t *testing.T) {
	r := &Recorder{}
	lost := secret.Event{Kind: secret.StateFailed, Reason: "store", Failure: &secret.Failure{Text: "disk full", At: time.Unix(5, 0)}}
	r.Secret(lost)
	if complete(r, Report{}).State != nil {
		t.Error("an agent that keeps no state has one")
	}
	r.KeepsState("/var/lib/x")
	got := complete(r, Report{})
	if s := got.State; s.Failing != "disk full" || !s.Since.Equal(time.Unix(5, 0)) || got.Summary().Grade != fair || !got.Errors[0].Now {
		t.Errorf("got %+v, %+v, %+v", s, got.Summary(), got.Errors)
	}
	later := lost
	later.Failure = &secret.Failure{Text: "disk still full", At: time.Unix(9, 0)}
	r.Secret(later)
	if s := complete(r, Report{}).State; !s.Since.Equal(time.Unix(5, 0)) || s.Failing != "disk still full" {
		t.Errorf("got %+v", s)
	}
	r.Secret(secret.Event{Kind: secret.StateFailed, Reason: "refused", Failure: &secret.Failure{Text: "old record", At: time.Unix(10, 0)}})
	r.Secret(secret.Event{Kind: secret.StateKept})
	if got := complete(r, Report{}); got.State.Failing != "" || got.Summary().Grade != good || got.Errors[0].Now || got.Errors[0].Do == "" {
		t.Errorf("got %+v, %+v", got.State, got.Errors)
	}
}

func TestPendingRestartIsShownWithItsReason(t *testing.T) {
	r := &Recorder{}
	r.Configuration(time.Unix(1, 0), []string{"socket.path"}, nil)
	r.Configuration(time.Unix(2, 0), nil, os.ErrInvalid) // leaves what is pending
	got := complete(r, Report{})
	if _, doc := open(t, got); !strings.Contains(text(doc), "socket.path") || !strings.Contains(text(doc), "A restart is pending.") {
		t.Error("the page does not say so")
	}
	r.Configuration(time.Unix(3, 0), nil, nil)
	if got := complete(r, Report{}); len(got.Restart) > 0 || got.Summary().Grade != good {
		t.Errorf("got %+v", got.Restart)
	}
}

func TestReplacedBinaryNeedsRestart(t *testing.T) {
	dir := t.TempDir()
	binary, next := filepath.Join(dir, "countersign"), filepath.Join(dir, "next")
	must(t, os.WriteFile(binary, nil, 0o600))
	r := Report{Machine: overview.Running(binary)}
	if got := complete(&Recorder{}, r); len(got.Restart) > 0 {
		t.Errorf("got %q", got.Restart)
	}
	must(t, os.WriteFile(next, nil, 0o600))
	must(t, os.Rename(next, binary))
	if got := complete(&Recorder{}, r); !slices.Contains(got.Restart, NewBinary) {
		t.Errorf("got %q", got.Restart)
	}
	must(t, os.Remove(binary)) // between two versions
	if got := complete(&Recorder{}, r); len(got.Restart) > 0 || overview.ThisMachine().Replaced() {
		t.Errorf("got %q", got.Restart)
	}
}

func TestAdviceFitsTheFailure(t *testing.T) {
	for _, c := range []struct{ authority, reason, said, want string }{
		{"vault", "unavailable", `x509: certificate has expired or is not yet valid`, "A certificate has expired"},
		{"vault", "unavailable", "dial tcp: lookup ca.example: no such host", "DNS"},
		{"vault", "unavailable", "connect: connection refused", "Nothing listens"},
		{"vault", "unavailable", "EOF", "firewall"},
		{"vault", "chain", "x509: certificate has expired", "A certificate has expired"},
		{"vault", "chain", "no path", "pinned_roots"},
		{"vault", "unavailable", `unavailable: provider "vault": address: connection refused`, "Fix the provider's settings"},
		{"vault", "unavailable", `unavailable: provider "vault" failed too often, next try at 12:00: exit status 1`, "provider's last lines"},
		{"vault", "deadline exceeded", `deadline exceeded: provider "vault" is backoff: exit status 1`, "provider's last lines"},
		{"vault", "deadline exceeded", `deadline exceeded: provider "vault" is configuring: stat ca.pem: no such file`, "a setting, a file or its CA"},
		{"vault", "deadline exceeded", `deadline exceeded: provider "vault": 64 calls in flight, none ended in time`, "Check the load of the CA"},
		{spiresecret.AuthorityName, "denied", "no identity issued", "registration entry"},
		{filesecret.Authority, "files", "no such file", "a key, a chain and roots"},
	} {
		e := secret.Event{Authority: c.authority, Reason: c.reason, Failure: &secret.Failure{Text: c.said, Action: ca.Wait}}
		if _, do := adviceOn(e); !strings.Contains(do, c.want) {
			t.Errorf("%q of %s: %q", c.said, c.authority, do)
		}
	}
	for _, reason := range ca.Reasons() {
		e := secret.Event{Authority: spiresecret.AuthorityName, Reason: reason.String(), Failure: &secret.Failure{Text: "connection refused"}}
		if does, do := adviceOn(e); strings.Contains(does+do, "CA") {
			t.Errorf("SPIRE is called a CA: %q", do)
		}
	}
}

func TestFirstCAToEndIsShown(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	signed, _ := authority.Pair(time.Hour, "spiffe://example.org/web")
	chain, err := pki.ParseCertificates(signed)
	must(t, err)
	bundle := secret.NewTrustBundle("ROOTCA", "test", authority.Bundle())
	pair := &secret.Item{Name: "default", Kind: secret.KeyPair, Chain: signed, NotBefore: chain[0].NotBefore, NotAfter: chain[0].NotAfter, RootFingerprint: bundle.RootFingerprints[0]}
	all := []secret.Status{{Name: "default", Item: pair, Held: true}, {Name: "ROOTCA", Item: bundle, Held: true}}
	want := chain[1].NotAfter
	if bundle.NotAfter.Before(want) {
		want = bundle.NotAfter
	}
	ends := EndsOf(all)
	if len(ends) != 1 || !ends["default"].NotAfter.Equal(want) || ends["default"].cut(pair) {
		t.Errorf("got %+v, want %s", ends, want)
	}
	pair.NotAfter = want
	if _, doc := open(t, Report{At: time.Now(), Secrets: all, Ends: ends}); !strings.Contains(text(doc), "cut short by the end of the CA") {
		t.Error("the page does not say so")
	}
}
