//go:build unix

package process

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// What is seen of an end, such as a broken channel, is often seen first.
func TestExitStatusIsPreferredAsReason(t *testing.T) {
	for script, want := range map[string]string{"exit 7": "exit status 7", "kill -9 $$": "channel broken"} {
		p := &Process{cmd: exec.Command("sh", "-c", script)}
		p.fail(errors.New("channel broken"))
		p.exited(p.cmd.Run())
		if err := p.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}
