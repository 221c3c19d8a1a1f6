package wire_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// calling counts the calls of CSRSign that go by themselves, and the streams.
type calling struct {
	grpc.ClientConnInterface
	mu             sync.Mutex
	alone, streams int
}

func (c *calling) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.mu.Lock()
	switch method {
	case providerv1.CertificateAuthority_CSRSign_FullMethodName:
		c.alone++
	case providerv1.CertificateAuthorityStream_CSRSignStream_FullMethodName:
		c.streams++
	}
	c.mu.Unlock()
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

func (c *calling) counted() [2]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return [2]int{c.alone, c.streams}
}

func described() wire.Metadata {
	return wire.Metadata{Name: "x", Version: "1", Abilities: []wire.Ability{wire.CertificateAuthority}}
}

// streaming returns a Remote whose stream is open, in a synctest bubble. Two calls have gone by
// themselves.
func streaming(t *testing.T, sign func(context.Context, ca.SignRequest) (ca.Certificate, error)) (*wire.Remote, *calling) {
	t.Helper()
	warm := func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
		if req.SubjectID == "spiffe://example.org/first" {
			return ca.Certificate{Chain: []byte("first")}, nil
		}
		return sign(ctx, req)
	}
	conn := &calling{ClientConnInterface: serve(t, &fake{metadata: described(), sign: warm})}
	return opened(t, conn), conn
}

func opened(t *testing.T, conn *calling) *wire.Remote {
	t.Helper()
	remote := wire.NewRemote(conn, wire.RemoteOptions{})
	if _, err := remote.Metadata(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := remote.CSRSign(t.Context(), named("first")); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
	if got := conn.counted(); got != [2]int{2, 1} {
		t.Fatalf("%d calls by themselves and %d streams, want 2 and 1", got[0], got[1])
	}
	return remote
}

func named(name string) ca.SignRequest {
	req := good()
	req.SubjectID, req.Token = "spiffe://example.org/"+name, ca.Token("token-of-"+name)
	return req
}

// askAtOnce makes calls at once, and returns their errors by name.
func askAtOnce(t *testing.T, remote *wire.Remote, names ...string) map[string]error {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	errs := map[string]error{}
	for _, name := range names {
		all.Go(func() {
			cert, err := remote.CSRSign(t.Context(), named(name))
			if err == nil && string(cert.Chain) != "spiffe://example.org/"+name {
				err = fmt.Errorf("got the certificate %q", cert.Chain)
			}
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	all.Wait()
	return errs
}

// own signs the name that is asked for.
func own(req ca.SignRequest) (ca.Certificate, error) {
	return ca.Certificate{Chain: []byte(req.SubjectID), Roots: []byte("roots")}, nil
}

func TestCallsGoOverOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, conn := streaming(t, func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) { return own(req) })
		var names []string
		for n := range 200 {
			names = append(names, fmt.Sprint("n", n))
		}
		for name, err := range askAtOnce(t, remote, names...) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := conn.counted(); got != [2]int{2, 1} {
			t.Errorf("%d calls by themselves and %d streams, want 2 and 1", got[0], got[1])
		}
	})
}

func TestStreamIsOpenedOnlyIfTheProviderServesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v1 := wire.V1()
		other := wire.Protocol{Version: 1, Register: v1.Register, Dial: v1.Dial} // its metadata do not have it
		conn := &calling{ClientConnInterface: serveVersion(t, other, &fake{metadata: described(), sign: func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) { return own(req) }})}
		remote := wire.NewRemote(conn, wire.RemoteOptions{})
		if _, err := remote.Metadata(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := askAtOnce(t, remote, "a")["a"]; err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		if got := conn.counted(); got != [2]int{3, 0} {
			t.Errorf("%d calls by themselves and %d streams, want 3 and none", got[0], got[1])
		}
	})
}

func TestCallsFarApartOpenNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &calling{ClientConnInterface: serve(t, &fake{metadata: described(), sign: func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) { return own(req) }})}
		remote := wire.NewRemote(conn, wire.RemoteOptions{})
		if _, err := remote.Metadata(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if err := askAtOnce(t, remote, "a")["a"]; err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		if got := conn.counted(); got != [2]int{5, 0} {
			t.Errorf("%d calls by themselves and %d streams, want 5 and none", got[0], got[1])
		}
	})
}

func TestSlowCallDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		remote, _ := streaming(t, func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
			if strings.HasSuffix(req.SubjectID, "slow") {
				<-release
			}
			return own(req)
		})
		slow := make(chan error)
		go func() { slow <- askAtOnce(t, remote, "slow")["slow"] }()
		synctest.Wait()
		began := time.Now()
		for name, err := range askAtOnce(t, remote, "a", "b", "c") {
			if err != nil || time.Since(began) > 0 {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
		close(release)
		if err := <-slow; err != nil {
			t.Error(err)
		}
	})
}

func TestEachCallEndsByItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends, deadlines := make(chan time.Time, 2), make(chan time.Duration, 2)
		remote, _ := streaming(t, func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
			if !strings.HasSuffix(req.SubjectID, "hangs") {
				return own(req)
			}
			deadline, _ := ctx.Deadline()
			deadlines <- time.Until(deadline)
			<-ctx.Done()
			ends <- time.Now()
			return ca.Certificate{}, ctx.Err()
		})
		began := time.Now()
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := remote.CSRSign(late, named("hangs")); !errors.Is(err, context.DeadlineExceeded) || <-deadlines != time.Second || (<-ends).Sub(began) != time.Second {
			t.Errorf("deadline: %v", err)
		}
		left, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := remote.CSRSign(left, named("hangs")); !errors.Is(err, context.Canceled) || <-deadlines != 30*time.Second || (<-ends).Sub(began) != 2*time.Second {
			t.Errorf("cancelled: %v", err)
		}
		if err := askAtOnce(t, remote, "a")["a"]; err != nil {
			t.Error(err)
		}
	})
}

func TestErrorOfACallIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, conn := streaming(t, func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
			time.Sleep(time.Millisecond) // both calls are in flight by then
			switch {
			case strings.HasSuffix(req.SubjectID, "quota"):
				return ca.Certificate{}, &ca.Error{Reason: ca.RateLimited, Message: "not for token-of-quota nor token-of-good", RetryAfter: time.Minute}
			case strings.HasSuffix(req.SubjectID, "panics"):
				panic("about token-of-panics")
			}
			time.Sleep(time.Second)
			return own(req)
		})
		errs := askAtOnce(t, remote, "quota", "good")
		err := errs["quota"]
		if !errors.Is(err, ca.ErrRateLimited) || ca.RetryAfter(err) != time.Minute || strings.Contains(err.Error(), "token-of") || errs["good"] != nil {
			t.Errorf("got %v", errs)
		}
		if errs = askAtOnce(t, remote, "panics", "good"); !errors.Is(errs["panics"], ca.ErrInternal) || strings.Contains(errs["panics"].Error(), "token-of") || errs["good"] != nil {
			t.Errorf("got %v", errs)
		}
		if got := conn.counted(); got != [2]int{2, 1} {
			t.Errorf("%d calls by themselves and %d streams, want 2 and 1", got[0], got[1])
		}
	})
}

func TestTraceOfACallIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, _ := streaming(t, func(ctx context.Context, _ ca.SignRequest) (ca.Certificate, error) {
			return ca.Certificate{Chain: []byte(trace.Parent(ctx) + ".")}, nil
		})
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		for _, want := range []string{parent, ""} {
			if cert, err := remote.CSRSign(trace.WithParent(t.Context(), want), good()); err != nil || string(cert.Chain) != want+"." {
				t.Errorf("the provider got the parent %q, want %q; %v", cert.Chain, want, err)
			}
		}
	})
}

func TestWhatDoesNotFitGoesByItself(t *testing.T) {
	for name, test := range map[string]struct {
		request, reply int // bytes
		made           int // certificates
		after          [2]int
	}{
		"request": {16 << 10, 10, 1, [2]int{3, 1}},
		"reply":   {10, 16 << 10, 2, [2]int{4, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ids := map[string]int{}
				remote, conn := streaming(t, func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
					ids[req.ID]++
					return ca.Certificate{Chain: make([]byte, test.reply)}, nil
				})
				req := good()
				req.Token = ca.Token(strings.Repeat("x", test.request))
				if _, err := remote.CSRSign(t.Context(), req); err != nil || ids[req.ID] != test.made {
					t.Errorf("%d certificates, want %d; %v", ids[req.ID], test.made, err)
				}
				synctest.Wait()
				if _, err := remote.CSRSign(t.Context(), good()); err != nil || conn.counted() != test.after {
					t.Errorf("after it %v, want %v; %v", conn.counted(), test.after, err)
				}
			})
		})
	}
}

func TestCallsBeyondTheStreamsBoundGoByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		remote, conn := streaming(t, func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
			<-release
			return own(req)
		})
		var all sync.WaitGroup
		for range 300 {
			all.Go(func() {
				if err := askAtOnce(t, remote, "a")["a"]; err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := conn.counted(); got != [2]int{2 + 300 - 256, 1} {
			t.Errorf("%d calls by themselves, want %d", got[0], 2+300-256)
		}
		close(release)
		all.Wait()
	})
}

func TestStreamThatBreaksFailsItsCallsAndIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := make(chan bool)
		r := &rogue{stream: func(stream rogueStream) error {
			for {
				in, err := stream.Recv()
				if err != nil {
					return err
				}
				if in.GetCalls()[0].GetRequest().GetSubjectId() == "spiffe://example.org/lost" {
					<-broken
					return status.Error(codes.Unavailable, "shutting down")
				}
				if err := stream.Send(answered(in.GetCalls()[0])); err != nil {
					return err
				}
			}
		}}
		conn := &calling{ClientConnInterface: serveRogue(t, r)}
		remote := opened(t, conn)
		time.AfterFunc(time.Second, func() { close(broken) })
		if err := askAtOnce(t, remote, "lost")["lost"]; !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("the call of a stream that broke: %v", err)
		}
		synctest.Wait()
		for range 3 { // two by themselves, until the stream is open
			if err := askAtOnce(t, remote, "a")["a"]; err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		if got := conn.counted(); got != [2]int{4, 2} {
			t.Errorf("%d calls by themselves and %d streams, want 4 and 2", got[0], got[1])
		}
	})
}

// No provider that breaks the rules of the stream gives a call the answer of another, keeps one for
// longer than its deadline, or is asked over a stream again.
func TestProviderThatBreaksTheRulesGetsNoStreamAgain(t *testing.T) {
	answers := func(make func(*providerv1.CSRSignCall) []*providerv1.CSRSignAnswer) func(rogueStream) error {
		return func(stream rogueStream) error {
			for {
				in, err := stream.Recv()
				if err != nil {
					return err
				}
				for _, call := range in.GetCalls() {
					if err := stream.Send(&providerv1.CSRSignStreamResponse{Answers: make(call)}); err != nil {
						return err
					}
				}
			}
		}
	}
	of := func(number uint64, call *providerv1.CSRSignCall) *providerv1.CSRSignAnswer {
		out := answered(call).GetAnswers()[0]
		out.Number = number
		return out
	}
	for name, stream := range map[string]func(rogueStream) error{
		"answers of other numbers": answers(func(call *providerv1.CSRSignCall) []*providerv1.CSRSignAnswer {
			return []*providerv1.CSRSignAnswer{of(call.GetNumber()+1000, call)}
		}),
		"two answers": answers(func(call *providerv1.CSRSignCall) []*providerv1.CSRSignAnswer {
			return []*providerv1.CSRSignAnswer{of(call.GetNumber(), call), of(call.GetNumber(), call), of(call.GetNumber(), call)}
		}),
		"no answers": answers(func(*providerv1.CSRSignCall) []*providerv1.CSRSignAnswer { return nil }),
		"more than a message may have": answers(func(call *providerv1.CSRSignCall) []*providerv1.CSRSignAnswer {
			out := of(call.GetNumber(), call)
			out.GetResponse().Chain = make([]byte, 1<<20)
			return []*providerv1.CSRSignAnswer{out}
		}),
		"answers before it is asked": func(stream rogueStream) error {
			return errors.Join(stream.Send(answered(&providerv1.CSRSignCall{Number: 1})), answers(nil)(stream))
		},
		"unimplemented": func(rogueStream) error { return status.Error(codes.Unimplemented, "no such method") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := &calling{ClientConnInterface: serveRogue(t, &rogue{stream: stream})}
				remote := opened(t, conn)
				for _, err := range askAtOnce(t, remote, "a", "b") {
					if err != nil && !errors.Is(err, ca.ErrUnavailable) {
						t.Error(err)
					}
				}
				synctest.Wait()
				for range 2 {
					if err := askAtOnce(t, remote, "c")["c"]; err != nil {
						t.Error("by itself:", err)
					}
					synctest.Wait()
				}
				if got := conn.counted(); got[1] != 1 {
					t.Errorf("%d streams were opened, want 1", got[1])
				}
			})
		})
	}
}

func TestMalformedAnswersAreInternalErrors(t *testing.T) {
	bad, err := proto.Marshal(status.New(codes.OK, "").Proto())
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]*providerv1.CSRSignAnswer{
		"nothing":    {},
		"OK":         {Outcome: &providerv1.CSRSignAnswer_Status{Status: bad}},
		"no status":  {Outcome: &providerv1.CSRSignAnswer_Status{Status: []byte("\xff")}},
		"no chain":   {Outcome: &providerv1.CSRSignAnswer_Response{Response: &providerv1.CSRSignResponse{}}},
		"nil at all": {Outcome: &providerv1.CSRSignAnswer_Response{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := opened(t, &calling{ClientConnInterface: serveRogue(t, &rogue{stream: func(stream rogueStream) error {
					in, err := stream.Recv()
					if err != nil {
						return err
					}
					answer.Number = in.GetCalls()[0].GetNumber()
					_ = stream.Send(&providerv1.CSRSignStreamResponse{Answers: []*providerv1.CSRSignAnswer{answer}})
					<-stream.Context().Done()
					return nil
				}})})
				if err := askAtOnce(t, remote, "a")["a"]; !errors.Is(err, ca.ErrInternal) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// Its text is not UTF-8, which the encoding demands. The same message may carry other callers' requests.
func TestRequestThatCannotBeEncodedFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, conn := streaming(t, func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
			time.Sleep(time.Second)
			return own(req)
		})
		var other sync.WaitGroup
		other.Go(func() {
			if err := askAtOnce(t, remote, "a")["a"]; err != nil {
				t.Error(err)
			}
		})
		for _, spoil := range []func(*ca.SignRequest){
			func(r *ca.SignRequest) { r.DNSNames = []string{"\xff"} }, func(r *ca.SignRequest) { r.SubjectID += "\xff" }, func(r *ca.SignRequest) { r.Token = "\xff" },
		} {
			req := good()
			spoil(&req)
			if _, err := remote.CSRSign(t.Context(), req); err == nil {
				t.Error("it was sent")
			}
		}
		other.Wait()
		if got := conn.counted(); got[1] != 1 {
			t.Errorf("%d streams were opened, want 1", got[1])
		}
	})
}

func TestEndOfTheStreamShowsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := opened(t, &calling{ClientConnInterface: serveRogue(t, &rogue{stream: func(stream rogueStream) error {
			for range 2 {
				if _, err := stream.Recv(); err != nil {
					return err
				}
			}
			return status.Error(codes.Unavailable, "not for token-of-a nor token-of-b")
		}})})
		var first sync.WaitGroup
		first.Go(func() {
			if err := askAtOnce(t, remote, "a")["a"]; !errors.Is(err, ca.ErrUnavailable) || strings.Contains(err.Error(), "token-of") {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := askAtOnce(t, remote, "b")["b"]; !errors.Is(err, ca.ErrUnavailable) || strings.Contains(err.Error(), "token-of") {
			t.Error(err)
		}
		first.Wait()
	})
}

// An answer may be on its way when its caller leaves; another for the same call may not.
func TestAnswerToACallThatWasGivenUpIsIgnoredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &calling{ClientConnInterface: serveRogue(t, &rogue{stream: func(stream rogueStream) error {
			in, err := stream.Recv()
			if err != nil {
				return err
			}
			left := in.GetCalls()[0]
			for range 3 { // its cancellation, and two calls
				if in, err = stream.Recv(); err != nil {
					return err
				}
				next := left
				if len(in.GetCalls()) > 0 {
					next = in.GetCalls()[0]
				}
				if err := stream.Send(answered(next)); err != nil {
					return err
				}
			}
			_ = stream.Send(answered(left))
			<-stream.Context().Done()
			return nil
		}})}
		remote := opened(t, conn)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := remote.CSRSign(ctx, named("left")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait() // the cancellation has arrived
		for _, name := range []string{"a", "b"} {
			if err := askAtOnce(t, remote, name)[name]; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		synctest.Wait()
		if err := askAtOnce(t, remote, "c")["c"]; err != nil || conn.counted() != [2]int{3, 1} {
			t.Errorf("after a second answer: %v, %v", conn.counted(), err)
		}
	})
}

// A provider that reads nothing keeps no call for longer than its deadline.
func TestProviderThatDoesNotReadKeepsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := opened(t, &calling{ClientConnInterface: serveRogue(t, &rogue{stream: func(stream rogueStream) error {
			<-stream.Context().Done()
			return nil
		}})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				req := good()
				req.Token = ca.Token(strings.Repeat("x", 10<<10)) // more than flow control lets through
				if _, err := remote.CSRSign(ctx, req); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
			})
		}
		all.Wait()
	})
}

func TestProviderServesAStreamOfAnyHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan bool, 2000)
		client := providerv1.NewCertificateAuthorityStreamClient(serve(t, &fake{metadata: described(), sign: func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
			if strings.HasSuffix(req.SubjectID, "hangs") {
				<-ctx.Done()
				gone <- true
				return ca.Certificate{}, ctx.Err()
			}
			time.Sleep(time.Second)
			return own(req)
		}}))
		open := func() providerStream {
			stream, err := client.CSRSignStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return stream
		}
		call := func(number uint64, name string) *providerv1.CSRSignCall {
			in, err := wire.SignRequestToProto(named(name))
			if err != nil {
				t.Fatal(err)
			}
			return &providerv1.CSRSignCall{Number: number, Request: in}
		}
		send := func(stream providerStream, calls ...*providerv1.CSRSignCall) {
			if err := stream.Send(&providerv1.CSRSignStreamRequest{Calls: calls}); err != nil {
				t.Fatal(err)
			}
		}

		// One that sends no more gets the answers that are due.
		ended := open()
		send(ended, call(7, "a"), call(8, "b"), &providerv1.CSRSignCall{Number: 9})
		_ = ended.CloseSend()
		got := map[uint64]string{}
		for {
			in, err := ended.Recv()
			if err != nil {
				break
			}
			for _, a := range in.GetAnswers() {
				got[a.GetNumber()] = string(a.GetResponse().GetChain())
			}
		}
		if len(got) != 3 || got[7] != "spiffe://example.org/a" || got[8] != "spiffe://example.org/b" || got[9] != "" {
			t.Errorf("got %v", got)
		}

		twice := open()
		send(twice, call(1, "a"), call(1, "b"))
		if _, err := twice.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("one number twice: %v", err)
		}

		timed := open()
		hangs := call(1, "hangs")
		hangs.Timeout = durationpb.New(time.Minute)
		send(timed, hangs)
		if in, err := timed.Recv(); err != nil || len(in.GetAnswers()) != 1 || len(in.GetAnswers()[0].GetStatus()) == 0 || !<-gone {
			t.Errorf("got %v, %v", in, err)
		}

		early := open() // given up before it was sent
		if err := early.Send(&providerv1.CSRSignStreamRequest{Calls: []*providerv1.CSRSignCall{call(1, "hangs")}, Cancelled: []uint64{1, 2}}); err != nil || !<-gone {
			t.Error(err)
		}

		flood := open()
		for n := range uint64(1100) {
			send(flood, call(n, "hangs"))
		}
		if in, err := flood.Recv(); err != nil || in.GetAnswers()[0].GetNumber() != 1024 {
			t.Errorf("too many calls: %v, %v", in, err)
		}
	})
}

// stopped is a provider that announces its end.
type stopped struct {
	fake
	stopping chan struct{}
}

func (s *stopped) Stopping() <-chan struct{} { return s.stopping }

// The stream would keep the provider's server from its graceful end.
func TestProviderThatStopsAnswersAndEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &stopped{stopping: make(chan struct{})}
		p.metadata = described()
		p.sign = func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
			if strings.HasSuffix(req.SubjectID, "slow") {
				time.Sleep(time.Second)
			}
			return own(req)
		}
		client := providerv1.NewCertificateAuthorityStreamClient(serve(t, p))
		stream, err := client.CSRSignStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		in, err := wire.SignRequestToProto(named("slow"))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&providerv1.CSRSignStreamRequest{Calls: []*providerv1.CSRSignCall{{Number: 1, Request: in}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(p.stopping)
		began := time.Now()
		if out, err := stream.Recv(); err != nil || string(out.GetAnswers()[0].GetResponse().GetChain()) != "spiffe://example.org/slow" {
			t.Errorf("got %v, %v", out, err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

type providerStream = grpc.BidiStreamingClient[providerv1.CSRSignStreamRequest, providerv1.CSRSignStreamResponse]

type rogueStream = grpc.BidiStreamingServer[providerv1.CSRSignStreamRequest, providerv1.CSRSignStreamResponse]

// rogue is a provider whose stream a test writes. Calls by themselves are answered.
type rogue struct {
	providerv1.UnimplementedCertificateAuthorityStreamServer
	stream func(rogueStream) error
}

func (r *rogue) CSRSignStream(stream rogueStream) error { return r.stream(stream) }

// serveRogue serves it beside the services of an ordinary provider.
func serveRogue(t *testing.T, r *rogue) *grpc.ClientConn {
	t.Helper()
	version := wire.V1()
	ordinary := version.Register
	version.Register = func(to grpc.ServiceRegistrar, signer ca.Client) {
		ordinary(without{to}, signer)
		providerv1.RegisterCertificateAuthorityStreamServer(to, r)
	}
	return serveVersion(t, version, &fake{metadata: described(), sign: func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) { return own(req) }})
}

// without registers all services but the stream of calls.
type without struct{ grpc.ServiceRegistrar }

func (w without) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if desc.ServiceName != providerv1.CertificateAuthorityStream_ServiceDesc.ServiceName {
		w.ServiceRegistrar.RegisterService(desc, impl)
	}
}

func answered(call *providerv1.CSRSignCall) *providerv1.CSRSignStreamResponse {
	return &providerv1.CSRSignStreamResponse{Answers: []*providerv1.CSRSignAnswer{{
		Number: call.GetNumber(), Outcome: &providerv1.CSRSignAnswer_Response{Response: &providerv1.CSRSignResponse{Chain: []byte(call.GetRequest().GetSubjectId())}},
	}}}
}
