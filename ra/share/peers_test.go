package share_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/peers"
)

func TestEachReplicaHasANameOfItsOwn(t *testing.T) {
	var first, second string
	var now func() time.Time
	var log *slog.Logger
	peers.Defaults(&first, &now, &log)
	peers.Defaults(&second, &now, &log)
	if first == second || now == nil || log == nil {
		t.Errorf("%q, %q", first, second)
	}
}

func TestWhatIsSetStays(t *testing.T) {
	name, log := "a", slog.New(slog.DiscardHandler)
	now, kept := func() time.Time { return time.Time{} }, log
	peers.Defaults(&name, &now, &log)
	if name != "a" || !now().IsZero() || log != kept {
		t.Errorf("%q, %s", name, now())
	}
}

func TestNewerRecordIsRecognizedWhateverItHas(t *testing.T) {
	for text, newer := range map[string]bool{
		`{"version":3}`: true, `{"version":2.5,"members":[]}`: true, `{"version":2}`: false, `{"version":-3}`: false, `{}`: false,
		``: false, `{"version":3`: false, `{"version":"3"}`: false, `[3]`: false,
	} {
		if err := peers.CheckVersion([]byte(text), 2); errors.Is(err, peers.ErrNewer) != newer || (err != nil) != newer {
			t.Errorf("%q: %v", text, err)
		}
	}
}
