package confine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a process started goes with its cgroup, whatever session or group it fled to.
func TestNoProcessEscapesItsCgroup(t *testing.T) {
	proctest.NeedsProcess(t)
	mount, err := unifiedMount()
	if err != nil {
		t.Skip(err)
	}
	g := &cgroups{mount}
	c, err := g.make("test", Limits{})
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setsid", "sh", "-c", "sleep 1000 & echo $!")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(c.dir.Fd())}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	group, err := os.ReadFile(fmt.Sprintf("/proc/%s/cgroup", strings.TrimSpace(child)))
	if err != nil || !strings.Contains(string(group), filepath.Base(c.path)) {
		t.Errorf("the child is in %s, %v", group, err)
	}
	_ = cmd.Wait()
	c.remove()
	if _, err := os.Stat(c.path); !os.IsNotExist(err) {
		t.Errorf("the group is still there: %v", err)
	}
}

func TestForeignCgroupTreeIsLeftAlone(t *testing.T) {
	for _, c := range []struct {
		path, own string
		want      bool
	}{{t.TempDir(), "/system.slice/agent.service", false}, {t.TempDir(), "/", true}} {
		if got := delegated(c.path, c.own); got != c.want {
			t.Errorf("%s: %v", c.own, got)
		}
	}
	if _, err := prepareCgroups(t.TempDir(), []string{"cpu"}); err == nil {
		t.Error("a folder was taken for a cgroup")
	}
	own := t.TempDir()
	if err := os.WriteFile(filepath.Join(own, "cgroup.controllers"), []byte("io hugetlb"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := prepareCgroups(own, []string{"cpu"}); err == nil || !strings.Contains(err.Error(), `no "cpu" controller`) {
		t.Errorf("got %v", err)
	}
	if path, ok := unifiedPath("1:cpu:/x\n0::/a/b\n"); !ok || path != "/a/b" {
		t.Errorf("%q %v", path, ok)
	}
	if _, ok := unifiedPath("1:cpu:/x\n"); ok {
		t.Error("a cgroup v1 was taken for one of v2")
	}
}

// A limit that needs cgroups holds, or is reported as missing.
func TestUnenforceableCPUShareIsReported(t *testing.T) {
	r, missing, err := New("x", "", Limits{CPU: 0.5, Memory: MinMemory, Processes: MinProcesses})
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []string{"memory: ", "processes: ", "cpu: "} {
		if said := strings.Contains(missing.String(), limit); said == (r.groups != nil) {
			t.Errorf("cgroups %v, reported %s", r.groups, missing)
		}
	}
	env := strings.Join(r.Environment(), " ")
	if !strings.Contains(env, "GOMEMLIMIT=60397974") || !strings.Contains(env, "GOMAXPROCS=1") {
		t.Error(env)
	}
}

// systemd 254 and later starts the host in the group that its unit names, and only the group above is
// delegated.
func TestUnitsNameTheGroupOfTheHost(t *testing.T) {
	units, err := filepath.Glob("../../../deploy/systemd/*.service")
	if err != nil || len(units) < 3 {
		t.Fatalf("%v, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\nDelegateSubgroup="+leafName+"\n") {
			t.Errorf("%s: write DelegateSubgroup=%s", unit, leafName)
		}
	}
}
