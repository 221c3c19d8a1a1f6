// Package workload answers calls for workloads that are held: the caller of a secret source is an
// identity that the server has established, a call ends with its workload, and the workload is checked
// before each message. Use [Serve] or [Calls]; have the service that answers call [Admit]. The Broker
// API and the Workload API of many identities share it. The goroutine of a call's handler owns a Call.
package workload

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// Workload is a workload that is held until Release.
type Workload struct {
	SPIFFEID string
	Name     string // in logs and limits
	// Check returns the status why the workload no longer has SPIFFEID, or nil. It must not block.
	Check   func() error
	Release func()
}

// Call is a call for a workload.
type Call struct {
	resolve func(context.Context, *Call) error
	over    context.CancelCauseFunc

	admitted bool // or refused
	workload Workload
	caller   secret.Caller
	err      error
	ends     []func()
}

// errNoWorkload ends a call that was answered without [Admit].
var errNoWorkload = status.Error(codes.Internal, "not a call for a workload")

// callKey is the context key of a *Call.
type callKey struct{}

// Serve has answer serve a call in a context that ends with the workload. [Admit] has resolve find the
// workload and [Call.Hold] and [Call.Join] it, once at most. What it took is released at the end. The error is the
// final status; over reports whether the workload's end is the reason.
func Serve(ctx context.Context, resolve func(context.Context, *Call) error, answer func(context.Context, *Call) error) (over bool, err error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &Call{resolve: resolve, over: cancel}
	defer c.close()
	err = answer(context.WithValue(within, callKey{}, c), c)
	if within.Err() != nil && ctx.Err() == nil {
		return true, context.Cause(within)
	}
	return false, err
}

func (c *Call) close() {
	for _, end := range slices.Backward(c.ends) {
		end()
	}
}

// Admit returns the workload of a call as a caller. The service that answers may ask more than once.
func Admit(ctx context.Context) (secret.Caller, error) {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		return secret.Caller{}, errNoWorkload
	}
	if !c.admitted {
		c.admitted = true
		c.err = c.resolve(ctx, c)
	}
	return c.caller, c.err
}

// Admitted reports whether Admit was called.
func (c *Call) Admitted() bool { return c.admitted }

// End ends the call with a status. It may be called from any goroutine, also after the call's end.
func (c *Call) End(why error) { c.over(why) }

// Defer has end called when the call ends, in reverse order.
func (c *Call) Defer(end func()) { c.ends = append(c.ends, end) }

// Hold has the call hold its workload until the end.
func (c *Call) Hold(w Workload) {
	c.workload = w
	c.Defer(w.Release)
}

// Join makes the call one of the workload's identity, of a Set of package identities.
func (c *Call) Join(join func(spiffeID string) (secret.Caller, error), leave func(secret.Caller)) (err error) {
	if c.caller, err = join(c.workload.SPIFFEID); err == nil {
		c.Defer(func() { leave(c.caller) })
	}
	return err
}

// Workload returns the workload that the call holds.
func (c *Call) Workload() Workload { return c.workload }

// Check returns why nothing more may be sent, or nil.
func (c *Call) Check() error {
	if c.workload.Check == nil {
		return errNoWorkload
	}
	return c.workload.Check()
}

// Calls returns a service whose calls are served by serve, in the way of [Serve].
func Calls(desc grpc.ServiceDesc, serve func(context.Context, func(context.Context, *Call) error) error) grpc.ServiceDesc {
	desc.Methods, desc.Streams = slices.Clone(desc.Methods), slices.Clone(desc.Streams)
	for i, m := range desc.Methods {
		desc.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (out any, err error) {
			err = serve(ctx, func(ctx context.Context, c *Call) error {
				if out, err = m.Handler(srv, ctx, decode, interceptor); err != nil {
					return err
				}
				return c.Check()
			})
			if err != nil {
				return nil, err
			}
			return out, nil
		}
	}
	for i, m := range desc.Streams {
		desc.Streams[i].Handler = func(srv any, on grpc.ServerStream) error {
			return serve(on.Context(), func(ctx context.Context, c *Call) error { return m.Handler(srv, stream{on, ctx, c}) })
		}
	}
	return desc
}

// stream is a stream for a workload.
type stream struct {
	grpc.ServerStream
	ctx  context.Context
	call *Call
}

// Context ends with the workload.
func (s stream) Context() context.Context { return s.ctx }

// SendMsg sends a message if the workload still has its identity.
func (s stream) SendMsg(m any) error {
	if err := s.call.Check(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}
