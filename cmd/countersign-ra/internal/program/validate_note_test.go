package program

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
)

func TestValidateNamesLimitsOfAGateway(t *testing.T) {
	c := &config.Config{}
	c.Istio.Listen, c.Istio.Limits = ":15012", config.IstioLimits{AuthenticationsOfAddress: 600, ConnectionsOfAddress: 2000}
	named := func() bool {
		return strings.Contains(strings.Join(istioNotes(c), "\n"), "authentications_of_address is 600, connections_of_address 2000")
	}
	if named() {
		t.Error("a service without remote clusters is warned of gateways")
	}
	c.Remotes.Secrets = true
	if !named() {
		t.Errorf("the limits are not named: %q", istioNotes(c))
	}
}

func TestValidateNamesBudgetsOfMachines(t *testing.T) {
	c := &config.Config{}
	c.Budget = config.Budget{Holder: 10}
	c.Rules = []config.Rule{{Name: "machines", Holders: 100, Match: config.Match{Requests: []string{config.IstioRequests}}}, {Name: "pods", Holders: 7}}
	c.Budget.HolderEvery.Duration = 5 * time.Minute
	named := func() bool {
		return strings.Contains(strings.Join(istioNotes(c), "\n"), "rules.machines.holders is 100: on each replica, the tokens of one account get 1000 certificates at once and 1200 an hour, so a caller that reaches N replicas") && !strings.Contains(strings.Join(istioNotes(c), "\n"), "rules.pods.holders")
	}
	if named() {
		t.Error("a service without machines is warned of their budgets")
	}
	c.Istio.Renewals.Identities = []string{"spiffe://vm.example.org/host/db-1"}
	if !named() {
		t.Errorf("the budgets are not named: %q", istioNotes(c))
	}
}
