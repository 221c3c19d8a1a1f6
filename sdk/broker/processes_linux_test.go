package broker_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/internal/host/process"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/identities"
)

// startProcesses serves references to real processes of this user.
func startProcesses(t *testing.T, identify func(broker.Process) (string, bool, error)) *engine {
	t.Helper()
	return start(t, func(cfg *broker.Config, _ *identities.Config) {
		cfg.Resolvers[broker.PID] = broker.Processes{Identify: identify}
	})
}

func sleep(t *testing.T) *proctest.Process {
	t.Helper()
	return proctest.Start(t, exec.Command("sleep", "3600"))
}

func byUser(p broker.Process) (string, bool, error) {
	uid, _, err := p.User()
	return domain + "web", int(uid) == os.Getuid(), err
}

func TestStreamEndsWithItsProcess(t *testing.T) {
	e := startProcesses(t, byUser)
	client, child, other := e.dial(e.ca, proxy), sleep(t), sleep(t)
	stream, second := e.subscribe(client, pid(t, int32(child.PID()))), e.subscribe(client, pid(t, int32(other.PID())))
	svid(t, stream)
	svid(t, second)
	child.Kill()
	refused(t, receive(stream), codes.NotFound, broker.WorkloadNotFound)
	err := receive(e.subscribe(client, pid(t, int32(child.PID()))))
	refused(t, err, codes.NotFound, broker.WorkloadNotFound)
	if strings.Contains(err.Error(), "hostPID") == process.InInitialNamespace() {
		t.Errorf("the hint at the PID namespace: %v", err)
	}
	e.ca.Rotate()
	svid(t, second)
}

func TestProcessThatChangesItsIdentityGetsNothingMore(t *testing.T) {
	changed := atomic.Bool{}
	e := startProcesses(t, func(p broker.Process) (string, bool, error) {
		if changed.Load() {
			return domain + "other", true, nil
		}
		return byUser(p)
	})
	stream := e.subscribe(e.dial(e.ca, proxy), pid(t, int32(sleep(t).PID())))
	svid(t, stream)
	changed.Store(true)
	e.ca.Rotate()
	refused(t, receive(stream), codes.PermissionDenied, broker.WorkloadNotEntitled)
}

func TestProcessWithoutIdentityIsRefused(t *testing.T) {
	why := errors.New("/proc is away")
	for _, of := range []struct {
		err    error
		code   codes.Code
		reason broker.Reason
	}{{nil, codes.PermissionDenied, broker.WorkloadNotEntitled}, {why, codes.Unavailable, ""}} {
		e := startProcesses(t, func(broker.Process) (string, bool, error) { return "", false, of.err })
		client := e.dial(e.ca, proxy)
		refused(t, receive(e.subscribe(client, pid(t, int32(os.Getpid())))), of.code, of.reason)
		refused(t, receive(e.subscribe(client, pid(t, 0))), codes.InvalidArgument, broker.ReferenceInvalid)
		refused(t, receive(e.subscribe(client, pid(t, -5))), codes.InvalidArgument, broker.ReferenceInvalid)
	}
}
