package program

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
)

func TestValidateNamesLimitsOfAGateway(t *testing.T) {
	c := &config.Config{}
	c.Limits.AuthenticationsOfAddress, c.Limits.ConnectionsOfAddress = 600, 2000
	named := func() bool {
		return strings.Contains(strings.Join(notes(environ.Vars{}, c), "\n"), "limits.authentications_of_address is 600, connections_of_address 2000")
	}
	c.Cluster.Disabled = true
	if named() {
		t.Error("a service without clusters is warned of gateways")
	}
	c.Cluster.Disabled = false
	if !named() {
		t.Errorf("the limits are not named: %q", notes(environ.Vars{}, c))
	}
}
