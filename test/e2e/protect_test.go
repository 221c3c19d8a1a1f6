package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestProviderProcessIsRefusedOnSocket(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{})
	a.log.await(t, "asked the agent for its key", "PermissionDenied")
	if strings.Contains(a.log.String(), "THE AGENT ANSWERED") {
		t.Error("a provider's process got an answer")
	}
}

// Whoever is the same user may read what an agent writes, but not its memory, and a
// crash of it leaves no core.
func TestAgentMemoryIsUnreadable(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{user: ordinary()})
	for _, file := range []string{"mem", "environ", "maps"} {
		look := exec.Command("head", "-c1", fmt.Sprintf("/proc/%d/%s", a.PID(), file))
		look.SysProcAttr = &syscall.SysProcAttr{Credential: a.user}
		out, err := look.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "ermission denied") {
			t.Errorf("%s: %v, %s", file, err, out)
		}
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", a.PID()))
	if err != nil && a.user != nil || err == nil && !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 0 0") {
		t.Errorf("%v, limits:\n%s", err, limits)
	}
}
