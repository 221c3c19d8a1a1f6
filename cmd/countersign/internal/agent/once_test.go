package agent

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
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
