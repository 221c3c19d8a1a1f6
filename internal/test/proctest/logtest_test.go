package proctest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
)

func TestAwaitWaitsForLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		go func() {
			for _, line := range []string{"first", "second", "third"} {
				time.Sleep(time.Second)
				log.Logger().Debug(line)
			}
		}()
		began := time.Now()
		log.Await(t, time.Minute, "second", func(text string) bool { return strings.Contains(text, "msg=second") })
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("waited %s for a line that comes after 2s", waited)
		}
		time.Sleep(time.Minute)
		if !strings.Contains(log.String(), "third") {
			t.Errorf("a line without a waiter is not kept: %s", &log)
		}
	})
}
