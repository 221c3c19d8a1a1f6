package pluginhost

import (
	"reflect"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/supervise"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// A field that is added inside reaches the public type.
func TestStatusHasEachFieldOfSupervisor(t *testing.T) {
	inside := supervise.Status{
		Name: "a", Provider: "b", State: supervise.Backoff, Since: time.Unix(1, 0), Path: "/p", SHA256: "00", Generation: 1, Restarts: 2, Reloads: 3, PID: 4,
		Authentication: "x", Protocol: 5, Metadata: wire.Metadata{Name: "m"}, LastError: "e", Crash: []string{"c"}, NextStart: time.Unix(2, 0),
		LastReload: "r", LastSecret: "s",
	}
	from, to := reflect.ValueOf(inside), reflect.ValueOf(statusOf(inside))
	for i := range from.NumField() {
		name := from.Type().Field(i).Name
		if from.Field(i).IsZero() {
			t.Errorf("the test leaves %s empty", name)
		}
		if got := to.FieldByName(name); !got.IsValid() || !reflect.DeepEqual(got.Convert(from.Field(i).Type()).Interface(), from.Field(i).Interface()) {
			t.Errorf("%s is lost", name)
		}
	}
}

func TestCallerMayChangeStatus(t *testing.T) {
	inside := supervise.Status{Crash: []string{"c"}, Metadata: wire.Metadata{Abilities: []wire.Ability{wire.RootSource}}}
	s := statusOf(inside)
	s.Crash[0], s.Metadata.Abilities[0] = "", 0
	if inside.Crash[0] != "c" || inside.Metadata.Abilities[0] != wire.RootSource {
		t.Errorf("the supervisor has %q, %v", inside.Crash, inside.Metadata.Abilities)
	}
}
