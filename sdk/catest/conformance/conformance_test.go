package conformance

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// On the real clock, as an author runs it.
func TestGoodProviderPassesEveryCheckBothWays(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of real time")
	}
	t.Parallel()
	Run(t, goodKit(), good())
}

// latecomer tells its roots when a request has brought a token to ask for them with.
func latecomer() func() wire.Provider {
	made := catest.NewCA(catest.Options{Intermediates: 2, NamesFromRequest: true})
	return provider.Define("kit", "1.0.0", func(context.Context, goodOnes) (*authority, error) {
		a, came := newAuthority(catest.Options{}), make(chan struct{})
		a.CA = made
		once := sync.OnceFunc(func() { close(came) })
		a.sign = func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
			if req.Token == goodToken {
				once()
			}
			return a.goodSign(ctx, req)
		}
		a.tell = func(ctx context.Context) ([]byte, error) {
			select {
			case <-came:
				return made.Roots(ctx)
			default:
				return nil, provider.Errorf(provider.Unavailable, "no token has come yet")
			}
		}
		a.follow = func(ctx context.Context, changed func([]byte) error) error {
			select {
			case <-came:
				return made.WatchRoots(ctx, changed)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return a, nil
	}).Provider
}

func TestSlowlyReadyProviderPasses(t *testing.T) {
	results := runAll(t, goodKit(), Value(wrapped(func(o *outer) {
		var waits atomic.Int64
		o.configure = func(ctx context.Context, settings map[string]any) error {
			err := o.Provider.Configure(ctx, settings)
			if err == nil {
				waits.Store(3)
			}
			return err
		}
		o.ready = func(err error) error {
			if err == nil && waits.Add(-1) >= 0 {
				return ca.ErrUnavailable
			}
			return err
		}
	})))
	if failed := failedOf(results); failed != nil {
		t.Errorf("failed %v%s", failed, describe(results))
	}
}

func TestProviderFetchingRootsWithRequestTokenPasses(t *testing.T) {
	for _, r := range runAll(t, goodKit(), Value(latecomer())) {
		if r.Outcome == Failed || r.ID == "META-08" && r.Took > 4*time.Second {
			t.Errorf("%s %s after %s: %s", r.ID, r.Outcome, r.Took, r.Seen)
		}
	}
	virtually(t, func(t *testing.T) {
		s := NewSession(goodKit(), Value(latecomer()))
		s.stalls = inTimeAlways
		defer s.Close()
		for _, check := range slices.Concat(rootChecks(), watchChecks()) {
			if r := s.Do(t.Context(), check); r.Outcome == Failed {
				t.Errorf("%s alone: %s", r.ID, r.Seen)
			}
		}
	})
}

// notRunFor are what cannot be seen of a value or over the boundary.
func TestOnlyUnobservableChecksAreNotRun(t *testing.T) {
	for form, c := range map[string]struct {
		subject Subject
		want    string
	}{
		"value": {Value(good()), "PROTO-03 PROTO-04 PROTO-05 PROTO-06 PROTO-07 PROTO-08 PROTO-09"},
		"wire":  {OverWire(good()), "SIGN-26 SIGN-27 FAULT-03 WATCH-10"},
	} {
		var unrun []string
		for _, r := range runAll(t, goodKit(), c.subject) {
			switch r.Outcome {
			case Unrun:
				unrun = append(unrun, r.ID)
			case Failed:
				t.Errorf("%s: %s %s", form, r.ID, r.Seen)
			}
		}
		if got := strings.Join(unrun, " "); got != c.want {
			t.Errorf("%s: not run are %s, want %s", form, got, c.want)
		}
	}
}

// spoiled is a connection on which one thing goes wrong.
type spoiled struct {
	grpc.ClientConnInterface
	spoil spoil
}

func (s spoiled) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if err, done := s.spoil(method, args, reply); done {
		return err
	}
	return s.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (s spoiled) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := s.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return spoiledStream{stream, s.spoil}, err
}

// spoiledStream passes what arrives to the spoil as the reply of no method.
type spoiledStream struct {
	grpc.ClientStream
	spoil spoil
}

func (s spoiledStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	if err, done := s.spoil("", nil, m); done {
		return err
	}
	return nil
}

// spoil answers a call in place of the provider, or passes it on.
type spoil func(method string, args, reply any) (err error, done bool)

// Each of these breaks one rule of the protocol.
func spoilers() map[string]spoil {
	return map[string]spoil{
		"PROTO-03": func(_ string, args, _ any) (error, bool) {
			in, ok := args.(proto.Message)
			return status.Error(codes.InvalidArgument, "unknown field"), ok && len(in.ProtoReflect().GetUnknown()) > 0
		},
		"PROTO-04": func(method string, _, _ any) (error, bool) { return nil, strings.Contains(method, "Later") },
		"PROTO-05": func(_ string, _, reply any) (error, bool) {
			health, ok := reply.(*healthv1.HealthCheckResponse)
			if ok {
				health.Status = healthv1.HealthCheckResponse_NOT_SERVING
			}
			return nil, ok
		},
		"PROTO-06": func(_ string, args, _ any) (error, bool) {
			in, ok := args.(*providerv1.CSRSignRequest)
			return status.Error(codes.Internal, "nil"), ok && in.GetRequestId() == ""
		},
		"PROTO-07": func(_ string, args, _ any) (error, bool) {
			in, ok := args.(*providerv1.CSRSignRequest)
			return nil, ok && len(in.GetCsr()) > wire.MaxMessage
		},
		"PROTO-08": func(_ string, args, _ any) (error, bool) {
			in, ok := args.(*providerv1.CSRSignRequest)
			denied := status.Convert(wire.ToStatus(ca.Errorf(ca.Denied, "no"))).Proto()
			denied.Code = int32(codes.InvalidArgument)
			return status.FromProto(denied).Err(), ok && string(in.GetCsr()) == string(nonsenseCSR())
		},
		"PROTO-09": func(_ string, _, reply any) (error, bool) {
			if out, ok := reply.(*providerv1.CSRSignStreamResponse); ok {
				for _, answer := range out.GetAnswers() {
					answer.Number = goodCall
				}
			}
			return nil, false
		},
	}
}

// spoiledWire is the good provider over a connection on which one thing goes wrong.
func spoiledWire(with spoil) Subject {
	subject := OverWire(good())
	open := subject.Open
	subject.Open = func(ctx context.Context) (*Instance, error) {
		i, err := open(ctx)
		i.Conn = spoiled{i.Conn, with}
		return i, err
	}
	return subject
}

func TestProtocolViolationFailsExactlyItsCheck(t *testing.T) {
	for id, with := range spoilers() {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			results := runAll(t, goodKit(), spoiledWire(with))
			if failed := failedOf(results); strings.Join(failed, " ") != id {
				t.Errorf("failed %v%s", failed, describe(results))
			}
		})
	}
}

func TestEveryCheckHasIDRuleReasonAndMutant(t *testing.T) {
	seen, mutated := map[string]bool{}, mutants()
	for _, c := range Checks() {
		if seen[c.ID] || !strings.HasSuffix(c.Rule, ".") || !strings.HasSuffix(c.Why, ".") || c.Level == "" {
			t.Errorf("%+v", c)
		}
		if mutated[c.ID] == nil && !strings.HasPrefix(c.ID, "PROTO-") {
			t.Errorf("%s has no mutant", c.ID)
		}
		seen[c.ID] = true
	}
	for _, c := range Checks() {
		for _, id := range c.After {
			if !seen[id] {
				t.Errorf("%s is after %s, which is not there", c.ID, id)
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("there are %d checks", len(seen))
	}
}
