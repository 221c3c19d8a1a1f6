package workloadapi

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/workload"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// Process is a running process. What it returns is true of no other process, whatever becomes of its
// PID.
type Process interface {
	// PID is that of the PID namespace of this program, 0 if the process has none there.
	PID() int32
	// User returns the effective user and group.
	User() (uid, gid uint32, err error)
	// Runs reports whether it runs the program at path, as this program sees it.
	Runs(path string) (bool, error)
	// Cgroup returns its path in the hierarchy of cgroup v2.
	Cgroup() (string, error)
}

// Callers gives each caller an identity of its own, that of its process. The process is held while it
// has a call, and identified again before each message: the call ends with the process, and once that
// has another identity. The server needs the credentials of package unixpeer, which those of [Listen]
// are. Experimental.
type Callers struct {
	// Identify returns the SPIFFE ID of a process; false if it has none, which refuses the call. An error
	// means that it cannot be identified at the moment. It must not block. Required.
	Identify func(Process) (spiffeID string, ok bool, err error)
	// Sessions has the identities; it is also the source of the secrets. Required.
	Sessions Sessions
	// Observe is called for each outcome, for metrics. It must not block. Default: none.
	Observe func(Outcome)
}

// Sessions gives each call its identity: a Set of package identities.
type Sessions interface {
	JoinPeer(peer secret.Caller, spiffeID string) (secret.Caller, error)
	Leave(caller secret.Caller)
}

// Outcome is what became of a call.
type Outcome string

// The outcomes. Granted comes when the caller has an identity, Ended when its process has ended.
const (
	Granted     Outcome = "granted"
	NoIdentity  Outcome = "no-identity"
	Limited     Outcome = "limited"
	Unavailable Outcome = "unavailable"
	Ended       Outcome = "ended"
)

// Outcomes returns all of them.
func Outcomes() []Outcome { return []Outcome{Granted, NoIdentity, Limited, Unavailable, Ended} }

func (c *Callers) check() error {
	if c != nil && (c.Identify == nil || c.Sessions == nil) {
		return errors.New("workloadapi: Callers needs Identify and Sessions")
	}
	return nil
}

// callers serves calls for the processes that make them.
type callers struct {
	Callers
	admit   func(context.Context) (secret.Caller, error) // of the socket
	service *Service
}

// serve has the service answer a call for its process.
func (c *callers) serve(ctx context.Context, answer func(context.Context, *workload.Call) error) error {
	over, err := workload.Serve(ctx, c.resolve, answer)
	if over {
		c.observe(Ended)
	}
	return err
}

// resolve holds the process of a call, and joins its identity.
func (c *callers) resolve(ctx context.Context, call *workload.Call) error {
	peer, err := c.admit(ctx)
	if err != nil {
		return err
	}
	err = c.hold(ctx, call, peer)
	if err != nil {
		err = c.refuse(ctx, peer, err)
	}
	c.observe(outcomeOf(err))
	return err
}

// hold identifies a process in the turn of its user, which bounds what one user's processes cost at
// once.
func (c *callers) hold(ctx context.Context, call *workload.Call, peer secret.Caller) error {
	leave, err := c.service.join(ctx, peer)
	if err != nil {
		return err
	}
	defer leave()
	held, err := unixpeer.Hold(ctx, func() { call.End(errEnded) })
	if err != nil {
		return err
	}
	id, err := c.identify(held)
	if err != nil {
		_ = held.Close() // a descriptor that was only read
		return err
	}
	call.Hold(workload.Workload{
		SPIFFEID: id, Check: func() error { return c.check(ctx, held, peer, id) }, Release: func() { _ = held.Close() },
	})
	return call.Join(func(id string) (secret.Caller, error) { return c.Sessions.JoinPeer(peer, id) }, c.Sessions.Leave)
}

func (c *callers) identify(p Process) (spiffeID string, err error) {
	id, ok, err := c.Identify(p)
	if err == nil && !ok {
		err = errNone
	}
	return id, err
}

// check identifies the process again: it may have become another user's, or run another program.
func (c *callers) check(ctx context.Context, p Process, peer secret.Caller, was string) error {
	is, err := c.identify(p)
	if err == nil && is != was {
		err = errOther
	}
	if err != nil {
		return c.refuse(ctx, peer, err)
	}
	return nil
}

var (
	errNone  = errors.New("no identity issued: no entry fits this process")
	errOther = errors.New("no identity issued: the process has another identity by now")
	errEnded = status.Error(codes.PermissionDenied, "no identity issued: the process that opened the connection has ended")
)

// refuse returns the status for a caller, and logs the reason once a minute for each user and kind.
// What is not meant for the caller stays in the log.
func (c *callers) refuse(ctx context.Context, peer secret.Caller, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	out := statusOfCaller(err)
	if suppressed, ok := c.service.repeats.Allow(peer.ID+" "+status.Code(out).String(), time.Now()); ok {
		c.service.refused.Warn("no identity for a caller of the Workload API", "uid", peer.UID, "gid", peer.GID, "pid", peer.PID,
			"error", text.Clean(err.Error()), "suppressed", suppressed)
	}
	return out
}

// statusOfCaller returns PermissionDenied where no identity is issued (SPIFFE Workload API, section
// 4.2), and Unavailable where that cannot be told.
func statusOfCaller(err error) error {
	_, final := status.FromError(err)
	switch {
	case final:
		return err
	case errors.Is(err, unixpeer.ErrEnded):
		return errEnded
	case errors.Is(err, unixpeer.ErrChanged):
		return status.Error(codes.PermissionDenied, errOther.Error())
	case errors.Is(err, errNone), errors.Is(err, errOther):
		return status.Error(codes.PermissionDenied, err.Error())
	case ca.ReasonFor(err) == ca.RateLimited:
		return status.Error(codes.ResourceExhausted, text.Clean(err.Error()))
	}
	return status.Error(codes.Unavailable, "the calling process cannot be identified at the moment; try again")
}

func (c *callers) observe(outcome Outcome) {
	if c.Observe != nil {
		c.Observe(outcome)
	}
}

// outcomeOf returns what a status error counts as.
func outcomeOf(err error) Outcome {
	switch status.Code(err) {
	case codes.OK:
		return Granted
	case codes.PermissionDenied:
		return NoIdentity
	case codes.ResourceExhausted:
		return Limited
	}
	return Unavailable
}
