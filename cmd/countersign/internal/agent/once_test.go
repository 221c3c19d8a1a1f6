package agent

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// The log of names on demand is locked by the agent that serves.
func TestOnceHasNoNamesOnDemand(t *testing.T) {
	var c config.Config
	c.Outputs = make([]config.Output, 1)
	c.Secrets = []config.Secret{{Name: "default"}, {Name: "**", Match: config.Patterns{"**"}}}
	got, err := forOnce(c, time.Minute)
	if err != nil || len(got.Rules()) > 0 || len(got.Named()) != 1 || len(c.Rules()) != 1 {
		t.Errorf("%v, %v", got.Secrets, err)
	}
}

// A certificate that is due has been written, so the alarm may wait until its end.
func TestOnceNamesTheEndOfACertificateThatIsNotRenewed(t *testing.T) {
	o := newOnceWritten(config.Config{Outputs: []config.Output{{Name: "web", Secret: "default"}}})
	ends := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	o.observe(output.Event{Output: "web", Type: output.WriteFailed, Text: "no space left"})
	o.observe(output.Event{Output: "web", Type: output.Written, NotAfter: ends, Due: true})
	away := []secret.Status{{Name: "another output's", Failure: &secret.Failure{Text: "denied"}}, {Name: "default", Failure: &secret.Failure{Text: "the CA is away"}}}
	const want = "output web is not complete: secret default: the CA is away (what is written is valid until 2026-12-01T10:00:00Z)"
	if err := o.err(away); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	o.observe(output.Event{Output: "web", Type: output.Written, NotAfter: ends.Add(time.Hour)})
	if err := o.err(away); err != nil {
		t.Errorf("after the renewal: %v", err)
	}
}
