package filewatch_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider/filewatch"
)

func TestChangeIsSignaledByEventAndByPoll(t *testing.T) {
	for name, opts := range map[string]filewatch.Options{
		"event": {Poll: time.Hour},
		"poll":  {Poll: 10 * time.Millisecond, PollOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "token")
			changed, stop := filewatch.Watch(opts, path)
			defer stop()
			if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
				t.Fatal(err)
			}
			select {
			case <-changed:
			case <-time.After(2 * time.Minute):
				t.Error("no signal")
			}
			stop()
		})
	}
}
