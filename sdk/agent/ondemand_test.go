package agent_test

import (
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestReservedNamesAreNotOrderedOnDemand(t *testing.T) {
	any, err := names.New("**")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, catest.NewCA(catest.Options{}))
	cfg.OnDemand = &ondemand.Config{
		Rules:    []ondemand.Rule{{Name: "any", Patterns: any, Certificate: secret.Spec{Authorities: []string{"test"}, TTL: time.Hour}}},
		Reserved: func(name string) bool { return name == "all" },
	}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for asked, want := range map[string]bool{"ALL": false, "Default": false, "a.example.org": true} {
		stop, err := a.Secrets().Watch(secret.Caller{}, asked, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if _, err := a.Secrets().Peek(secret.Caller{}, asked); errors.Is(err, secret.ErrUnknown) == want {
			t.Errorf("%s: %v", asked, err)
		}
	}
}
