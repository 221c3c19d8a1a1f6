package command_test

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// The deadline has passed before anything is read, as on a busy machine.
func TestExpiredPipeIsReadToItsEnd(t *testing.T) {
	for name, want := range map[string]error{"ended": nil, "held by another process": os.ErrDeadlineExceeded} {
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 60_000)
		if _, err := in.Write(text); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			_ = in.Close()
		}
		if err := out.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(&command.Pipe{File: out})
		if len(got) != len(text) || !errors.Is(err, want) {
			t.Errorf("%s: %d of %d bytes, %v", name, len(got), len(text), err)
		}
		_ = errors.Join(in.Close(), out.Close())
	}
}
