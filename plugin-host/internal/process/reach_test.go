package process

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// On a busy machine, an exit shows long after the end of the output.
func TestExitThatShowsLateIsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Process{ended: make(chan struct{})}
		exit := errors.New("exited: exit status 7")
		time.AfterFunc(3*time.Second, func() { p.fail(exit); close(p.ended) })
		if err := p.silent(t.Context(), "", io.EOF); !errors.Is(err, exit) {
			t.Errorf("got %v", err)
		}
		<-p.ended
	})
}
