package safefile

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHungFileSystemCostsOneCallInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		answers := make(chan struct{})
		try := func() (string, error) {
			return inTime("/mnt/away", patience, func() (string, error) { calls.Add(1); <-answers; return "late", nil })
		}
		began := time.Now()
		if _, err := try(); err == nil || !strings.Contains(err.Error(), "did not answer within 5s") || time.Since(began) != patience {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if _, err := try(); err == nil || time.Since(began) != patience || calls.Load() != 1 {
			t.Errorf("%v after %s, %d calls", err, time.Since(began), calls.Load())
		}
		close(answers)
		synctest.Wait()
		if got, err := try(); got != "late" || err != nil || hangs("/mnt/away", 0) != 0 {
			t.Errorf("after it has answered: %q, %v", got, err)
		}
	})
}
