package pluginhost

import (
	"testing"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestCallerMayChangeStatus(t *testing.T) {
	inside := Status{Crash: []string{"c"}, Metadata: wire.Metadata{Abilities: []wire.Ability{wire.RootSource}}}
	s := inside.clone()
	s.Crash[0], s.Metadata.Abilities[0] = "", 0
	if inside.Crash[0] != "c" || inside.Metadata.Abilities[0] != wire.RootSource {
		t.Errorf("the supervisor has %q, %v", inside.Crash, inside.Metadata.Abilities)
	}
}
