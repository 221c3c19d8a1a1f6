package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/host/process"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// Processes resolves references of type [PID] to processes of this machine. It holds each by a
// descriptor, so that nothing goes to another process that gets the same PID. Linux only.
type Processes struct {
	// Identify returns the SPIFFE ID of a process; false if it has none. An error means that it cannot
	// be identified at the moment. It must not block. Required.
	Identify func(Process) (spiffeID string, ok bool, err error)
}

// Process is a running process, one that has a PID in the PID namespace of this program.
type Process = workloadapi.Process

// Numbers implements [Numbered].
func (p Processes) Numbers() int { return process.MaxPID() }

// Resolve implements [Resolver].
func (p Processes) Resolve(_ context.Context, reference *anypb.Any, ended func(error)) (Workload, error) {
	var in broker.WorkloadPIDReference
	if err := reference.UnmarshalTo(&in); err != nil {
		return Workload{}, Refuse(ReferenceInvalid, "the reference is not a WorkloadPIDReference")
	}
	if in.GetPid() <= 0 {
		return Workload{}, Refuse(ReferenceInvalid, "invalid PID %d: must be positive", in.GetPid())
	}
	held, err := process.Hold(in.GetPid(), func() { ended(Refuse(WorkloadNotFound, "process %d has ended", in.GetPid())) })
	if err != nil {
		return Workload{}, notFound(in.GetPid(), err)
	}
	id, err := p.identify(held)
	if err != nil {
		_ = held.Close() // a descriptor that was only read
		return Workload{}, err
	}
	return Workload{
		SPIFFEID: id, Name: fmt.Sprintf("process %d", held.PID()), Check: func() error { return p.check(held, id) },
		Release: func() { _ = held.Close() },
	}, nil
}

func (p Processes) identify(held *process.Held) (string, error) {
	id, ok, err := p.Identify(held)
	switch {
	case err != nil:
		return "", notFound(held.PID(), err)
	case !ok:
		return "", Refuse(WorkloadNotEntitled, "process %d has no identity", held.PID())
	}
	return id, nil
}

// check identifies the process again: it may have become another user's, or run another program.
func (p Processes) check(held *process.Held, was string) error {
	is, err := p.identify(held)
	if err == nil && is != was {
		return Refuse(WorkloadNotEntitled, "process %d has another identity now", held.PID())
	}
	return err
}

// notFound refuses a reference to a process that is not there.
func notFound(pid int32, err error) error {
	if !errors.Is(err, process.ErrNotFound) {
		return err
	}
	if process.InInitialNamespace() {
		return Refuse(WorkloadNotFound, "no process %d", pid)
	}
	return Refuse(WorkloadNotFound, "no process %d in the agent's own PID namespace; for the processes of its machine, run the agent with hostPID: true (Kubernetes) or --pid=host", pid)
}
