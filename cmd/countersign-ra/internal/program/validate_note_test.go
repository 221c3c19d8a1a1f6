package program

import (
	"strings"
	"testing"

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
