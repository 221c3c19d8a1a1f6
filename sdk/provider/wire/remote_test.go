package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/countersign-dev/countersign/internal/memory"
	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const csr = "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"

// fake is a provider whose answers a test sets.
type fake struct {
	wire.Provider
	metadata wire.Metadata
	sign     func(ctx context.Context, req ca.SignRequest) (ca.Certificate, error)
	roots    []byte
	token    ca.ExchangedToken
	settings map[string]any
	found    []wire.Diagnostic
}

func (f *fake) Metadata(context.Context) (wire.Metadata, error) { return f.metadata, nil }

func (f *fake) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	return f.sign(ctx, req)
}

func (f *fake) Roots(context.Context) ([]byte, error) { return f.roots, nil }

func (f *fake) WatchRoots(_ context.Context, changed func([]byte) error) error {
	return changed(f.roots)
}

func (f *fake) ExchangeToken(context.Context, ca.TokenRequest) (ca.ExchangedToken, error) {
	return f.token, nil
}

func (f *fake) Configure(_ context.Context, settings map[string]any) error {
	f.settings = settings
	return nil
}

func (f *fake) Validate(context.Context, map[string]any) ([]wire.Diagnostic, error) {
	return f.found, nil
}

func (f *fake) ValidateOnline(ctx context.Context, settings map[string]any) ([]wire.Diagnostic, error) {
	found, _ := f.Validate(ctx, settings)
	return found, ca.ErrUnimplemented
}

// serve returns a connection to a server of p.
func serve(t *testing.T, p wire.Provider, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return serveVersion(t, wire.V1(), p, opts...)
}

func serveVersion(t *testing.T, version wire.Protocol, p wire.Provider, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(wire.ServerOptions(nil)...)
	wire.Register(server, version, p)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///fake", append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop() })
	return conn
}

func good() ca.SignRequest {
	return ca.SignRequest{
		ID: "8d7f1b1e-6f0a-4b7e-9d0c-3f1c2b4a5d6e", CSR: []byte(csr), SubjectID: "spiffe://example.org/web",
		DNSNames: []string{"web.example"}, IPAddresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")},
		TTL: 90 * time.Minute, Token: "eyJhbGciOi.the-token", Requester: "pod main/shop/web-7",
	}
}

func TestRequestAndReplyArriveUnchanged(t *testing.T) {
	var got ca.SignRequest
	want := ca.Certificate{Chain: []byte("chain"), Roots: []byte("roots")}
	remote := wire.NewRemote(serve(t, &fake{sign: func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
		got = req
		return want, nil
	}}), wire.RemoteOptions{})
	cert, err := remote.CSRSign(t.Context(), good())
	if err != nil || !reflect.DeepEqual(cert, want) || !reflect.DeepEqual(got, good()) {
		t.Errorf("arrived %+v, answered %s, %v", got, cert.Chain, err)
	}
}

func TestRequesterIsBoundedAndHasNoToken(t *testing.T) {
	var got ca.SignRequest
	remote := wire.NewRemote(serve(t, &fake{sign: func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
		got = req
		return ca.Certificate{Chain: []byte("chain")}, nil
	}}), wire.RemoteOptions{})
	req := good()
	req.Requester = "\x1b[1m " + req.Token.Reveal() + strings.Repeat("x", 1000)
	if _, err := remote.CSRSign(t.Context(), req); err != nil || len(got.Requester) > 256 || !strings.HasPrefix(got.Requester, `\x1b[1m (secret)x`) {
		t.Errorf("got %q, %v", got.Requester, err)
	}
}

func TestFactsArriveUnchanged(t *testing.T) {
	f := &fake{}
	remote := wire.NewRemote(serve(t, f), wire.RemoteOptions{})
	for _, facts := range []ca.Facts{
		{}, {FixedLifetime: true}, {NeedsToken: true}, {NameMatch: ca.MatchTrustDomain}, {NameMatch: ca.MatchAny, FixedLifetime: true},
	} {
		f.metadata = wire.Metadata{Name: "x", Version: "1", Abilities: []wire.Ability{wire.CertificateAuthority}, Facts: facts}
		if m, err := remote.Metadata(t.Context()); err != nil || m.Facts != facts {
			t.Errorf("%+v arrived as %+v, %v", facts, m.Facts, err)
		}
	}
	f.metadata.Facts = ca.Facts{NameMatch: 7} // of a later version
	if m, err := remote.Metadata(t.Context()); err != nil || m.Facts.NameMatch != ca.MatchExact {
		t.Errorf("an unknown match arrived as %s, %v", m.Facts.NameMatch, err)
	}
}

func TestOutOfBoundsRequestIsRefusedAtBothEnds(t *testing.T) {
	for name, spoil := range map[string]func(*ca.SignRequest){
		"no UUID":           func(r *ca.SignRequest) { r.ID = "1" },
		"UUID with braces":  func(r *ca.SignRequest) { r.ID = "{" + r.ID[2:] + "}" },
		"no CSR":            func(r *ca.SignRequest) { r.CSR = nil },
		"two CSRs":          func(r *ca.SignRequest) { r.CSR = []byte(csr + csr) },
		"another PEM block": func(r *ca.SignRequest) { r.CSR = []byte(strings.ReplaceAll(csr, "REQUEST", "THING")) },
		"huge CSR":          func(r *ca.SignRequest) { r.CSR = []byte(csr + strings.Repeat(" ", 64<<10)) },
		"long subject":      func(r *ca.SignRequest) { r.SubjectID = "spiffe://x/" + strings.Repeat("x", 3000) },
		"no SPIFFE ID":      func(r *ca.SignRequest) { r.SubjectID = "https://example.org/web" },
		"newline":           func(r *ca.SignRequest) { r.SubjectID += "\n" },
		"empty name":        func(r *ca.SignRequest) { r.DNSNames = []string{""} },
		"long name":         func(r *ca.SignRequest) { r.DNSNames = []string{strings.Repeat("x", 254)} },
		"many names":        func(r *ca.SignRequest) { r.DNSNames = make([]string, 1001) },
		"many addresses":    func(r *ca.SignRequest) { r.IPAddresses = make([]netip.Addr, 1001) },
		"no address":        func(r *ca.SignRequest) { r.IPAddresses = []netip.Addr{{}} },
		"address with zone": func(r *ca.SignRequest) { r.IPAddresses = []netip.Addr{netip.MustParseAddr("fe80::1%eth0")} },
		"negative lifetime": func(r *ca.SignRequest) { r.TTL = -1 },
		"split header":      func(r *ca.SignRequest) { r.Token += "\r\nX-Admin: 1" },
		"huge token":        func(r *ca.SignRequest) { r.Token = ca.Token(strings.Repeat("x", 64<<10+1)) },
	} {
		req := good()
		spoil(&req)
		if _, err := wire.SignRequestToProto(req); !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("%s: sent, %v", name, err)
		}
		in := &providerv1.CSRSignRequest{RequestId: req.ID, Csr: req.CSR, SubjectId: req.SubjectID, DnsNames: req.DNSNames, Token: req.Token.Reveal()}
		for _, ip := range req.IPAddresses {
			in.IpAddresses = append(in.IpAddresses, ip.String())
		}
		if _, err := wire.SignRequestFromProto(in); req.TTL >= 0 && !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("%s: taken, %v", name, err)
		}
	}
}

func TestRogueReplyIsAnInternalError(t *testing.T) {
	huge := make([]byte, 1<<20+1)
	rogue := &fake{sign: func(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
		if req.TTL == 0 {
			return ca.Certificate{}, nil
		}
		return ca.Certificate{Chain: []byte("chain"), Roots: huge}, nil
	}, roots: nil, token: ca.ExchangedToken{AccessToken: "a\nb"}}
	remote, ctx := wire.NewRemote(serve(t, rogue), wire.RemoteOptions{}), t.Context()
	noTTL := good()
	noTTL.TTL = 0
	_, empty := remote.CSRSign(ctx, noTTL)
	_, large := remote.CSRSign(ctx, good())
	_, roots := remote.Roots(ctx)
	watch := remote.WatchRoots(ctx, func([]byte) error { return nil })
	_, token := remote.ExchangeToken(ctx, ca.TokenRequest{SubjectToken: "me"})
	for name, err := range map[string]error{"no chain": empty, "huge roots": large, "no roots": roots, "no watched roots": watch, "a token of two lines": token} {
		if !errors.Is(err, ca.ErrInternal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Go-plugin's connections take 2 GiB; the call's own limit goes before.
	rogue.roots = make([]byte, wire.MaxMessage+1)
	wide := wire.NewRemote(serve(t, rogue, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30))), wire.RemoteOptions{})
	if _, err := wide.Roots(ctx); !errors.Is(err, ca.ErrInternal) { // though gRPC has the code of a quota for it
		t.Errorf("more than a message may have: %v", err)
	}
}

// Three replies are ready. One is received at a time, the next once the one before is examined.
func TestRepliesAreReceivedWithinBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := serve(t, &fake{sign: func(context.Context, ca.SignRequest) (ca.Certificate, error) {
			return ca.Certificate{Chain: make([]byte, 1<<20)}, nil
		}})
		budget := memory.New(wire.Room)
		held, err := budget.Take(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		returned, examined := make(chan error), make(chan bool)
		for range 3 {
			go func() {
				ctx, done := memory.Keep(t.Context())
				defer done()
				_, err := wire.NewRemoteWithin(budget, conn, wire.RemoteOptions{}).CSRSign(ctx, good())
				returned <- err
				<-examined
			}()
		}
		synctest.Wait()
		held.Release()
		for range 3 {
			if err := <-returned; err != nil {
				t.Error(err)
			}
			synctest.Wait()
			select {
			case <-returned:
				t.Error("two replies at once are more than the budget")
			default:
			}
			examined <- true
		}
	})
}

// A certificate whose authority publishes its roots beside it waits for them: they come with another
// call, which the certificate must not keep out.
func TestSmallReplyThatIsExaminedKeepsNoOtherOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := &fake{sign: func(context.Context, ca.SignRequest) (ca.Certificate, error) {
			return ca.Certificate{Chain: make([]byte, 10<<10)}, nil
		}, roots: []byte("roots")}
		remote := wire.NewRemoteWithin(memory.New(wire.Room), serve(t, provider), wire.RemoteOptions{})
		ctx, examined := memory.Keep(t.Context())
		defer examined()
		if _, err := remote.CSRSign(ctx, good()); err != nil {
			t.Fatal(err)
		}
		if _, err := remote.Roots(t.Context()); err != nil {
			t.Errorf("roots while a certificate waits for them: %v", err)
		}
	})
}

func TestReplyThatDoesNotEndGivesItsRoomBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := memory.New(wire.Room)
		remote := wire.NewRemoteWithin(budget, serve(t, &endless{}), wire.RemoteOptions{Timeout: time.Hour})
		began := time.Now()
		if _, err := remote.Roots(t.Context()); !errors.Is(err, ca.ErrDeadline) || time.Since(began) > time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		claim, err := budget.Take(t.Context(), wire.Room)
		if err != nil {
			t.Fatal(err)
		}
		claim.Release()
	})
}

// endless begins a reply that does not end.
type endless struct{ fake }

func (*endless) Roots(ctx context.Context) ([]byte, error) {
	if err := grpc.SendHeader(ctx, nil); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestCallGetsDefaultDeadline(t *testing.T) { synctest.Test(t, callGetsDefaultDeadline) }

func callGetsDefaultDeadline(t *testing.T) {
	left := make(chan time.Duration, 1)
	remote := wire.NewRemote(serve(t, &fake{sign: func(ctx context.Context, _ ca.SignRequest) (ca.Certificate, error) {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		<-ctx.Done()
		return ca.Certificate{}, ctx.Err()
	}}), wire.RemoteOptions{Timeout: 100 * time.Millisecond})
	if _, err := remote.CSRSign(t.Context(), good()); !errors.Is(err, context.DeadlineExceeded) || <-left != 100*time.Millisecond {
		t.Errorf("without a deadline: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	called := make(chan error, 1)
	go func() { _, err := remote.CSRSign(ctx, good()); called <- err }()
	if got := <-left; got != time.Hour {
		t.Errorf("the caller's hour has become %s", got)
	}
	cancel()
	if err := <-called; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// They would arrive as other numbers: google.protobuf.Struct has doubles.
func TestIntegersBeyondDoublesAreRefused(t *testing.T) {
	f := &fake{}
	remote := wire.NewRemote(serve(t, f), wire.RemoteOptions{})
	for _, taken := range []any{0, -7, int64(1 << 53), int64(-1 << 53), 1.5, 1e300} {
		if err := remote.Configure(t.Context(), map[string]any{"n": taken}); err != nil {
			t.Errorf("%v: %v", taken, err)
		}
	}
	for _, refused := range []any{int64(1<<53 + 1), int64(-1<<53 - 1), uint64(1<<64 - 1)} {
		nested := map[string]any{"list": []any{map[string]any{"n": refused}}}
		if err := remote.Configure(t.Context(), nested); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprint(refused)) {
			t.Errorf("%v: %v", refused, err)
		}
	}
}

func TestProviderCannotCancelRequest(t *testing.T) {
	remote := wire.NewRemote(serve(t, &fake{sign: func(context.Context, ca.SignRequest) (ca.Certificate, error) {
		return ca.Certificate{}, ca.Errorf(ca.Canceled, "no more")
	}}), wire.RemoteOptions{})
	if _, err := remote.CSRSign(t.Context(), good()); ca.ActionFor(err) != ca.Wait {
		t.Errorf("got %v", err)
	}
}

// rude quotes the token, as a provider without our server end may.
type rude struct {
	providerv1.UnimplementedCertificateAuthorityServer
}

func (rude) CSRSign(_ context.Context, in *providerv1.CSRSignRequest) (*providerv1.CSRSignResponse, error) {
	return nil, status.Errorf(codes.PermissionDenied, "no access for %s, cut: %.12s...", in.GetToken(), in.GetToken())
}

func TestQuotedTokenIsInNoError(t *testing.T) {
	version := wire.V1()
	version.Register = func(r grpc.ServiceRegistrar, _ ca.Client) {
		providerv1.RegisterCertificateAuthorityServer(r, rude{})
	}
	remote := wire.NewRemote(serveVersion(t, version, &fake{}), wire.RemoteOptions{})
	_, err := remote.CSRSign(t.Context(), good())
	if want := "denied: no access for (secret), cut: (secret)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSettingsArriveAsJSONValues(t *testing.T) {
	f := &fake{}
	remote := wire.NewRemote(serve(t, f), wire.RemoteOptions{})
	type named string
	err := remote.Configure(t.Context(), map[string]any{"list": []string{"a"}, "n": 3, "deep": map[string]named{"k": "v"}})
	want := map[string]any{"list": []any{"a"}, "n": 3.0, "deep": map[string]any{"k": "v"}}
	if err != nil || !reflect.DeepEqual(f.settings, want) {
		t.Errorf("%v, %v", f.settings, err)
	}
	if err := remote.Configure(t.Context(), map[string]any{"f": func() {}}); !errors.Is(err, ca.ErrInvalid) {
		t.Errorf("a function: %v", err)
	}
}

func TestMetadataAndDiagnosticsAreBounded(t *testing.T) {
	fine := wire.Metadata{Name: "acme", Version: "1", Abilities: []wire.Ability{wire.CertificateAuthority, wire.RootSource}, SettingsSchema: "{}"}
	f := &fake{metadata: fine}
	f.metadata.Abilities = append(f.metadata.Abilities, 99, wire.RootSource) // of a later version; twice
	remote := wire.NewRemote(serve(t, f), wire.RemoteOptions{})
	if got, err := remote.Metadata(t.Context()); err != nil || !reflect.DeepEqual(got, fine) {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, spoil := range map[string]func(*wire.Metadata){
		"no name":     func(m *wire.Metadata) { m.Name = "" },
		"a path":      func(m *wire.Metadata) { m.Name = "../acme" },
		"a long name": func(m *wire.Metadata) { m.Name = strings.Repeat("x", 64) },
		"-name":       func(m *wire.Metadata) { m.Name = "-acme" },
		"no version":  func(m *wire.Metadata) { m.Version = "" },
		"a bell":      func(m *wire.Metadata) { m.Version = "1\a" },
		"no CA":       func(m *wire.Metadata) { m.Abilities = m.Abilities[1:] },
		"many":        func(m *wire.Metadata) { m.Abilities = make([]wire.Ability, 65) },
		"schema":      func(m *wire.Metadata) { m.SettingsSchema = "[1]" },
		"huge schema": func(m *wire.Metadata) { m.SettingsSchema = "{" + strings.Repeat(" ", 256<<10) + "}" },
	} {
		f.metadata = fine
		f.metadata.Abilities = append([]wire.Ability(nil), fine.Abilities...)
		spoil(&f.metadata)
		if _, err := remote.Metadata(t.Context()); !errors.Is(err, ca.ErrInternal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.found = make([]wire.Diagnostic, 100)
	f.found[0] = wire.Diagnostic{Warning: true, Summary: "bell\a", Detail: strings.Repeat("x", 999), Pointer: "/a"}
	found, err := remote.Validate(t.Context(), nil)
	if err != nil || len(found) != 64 || !found[0].Warning || found[0].Summary != `bell\a` || len(found[0].Detail) > 256 || found[1].Warning {
		t.Errorf("%d diagnostics, the first %+v, %v", len(found), found[0], err)
	}
}

func FuzzSignRequestFromProto(f *testing.F) {
	in, err := wire.SignRequestToProto(good())
	if err != nil {
		f.Fatal(err)
	}
	text, err := proto.Marshal(in)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		var in providerv1.CSRSignRequest
		if proto.Unmarshal(text, &in) != nil {
			return
		}
		req, err := wire.SignRequestFromProto(&in)
		if err != nil {
			return
		}
		if _, err := wire.SignRequestToProto(req); err != nil {
			t.Errorf("what was taken cannot be sent: %v", err)
		}
	})
}

func TestProviderReportsWhetherAuthorityWasAsked(t *testing.T) {
	warning := wire.Diagnostic{Summary: "odd", Warning: true}
	for name, c := range map[string]struct {
		p    wire.Provider
		want error
	}{
		"it has no such check":        {&fake{found: []wire.Diagnostic{warning}}, ca.ErrUnimplemented},
		"it asked":                    {&asking{&fake{found: []wire.Diagnostic{warning}}, nil}, nil},
		"it found the settings wrong": {&fake{found: []wire.Diagnostic{{Summary: "wrong"}}}, nil},
		"it could not ask":            {&asking{&fake{}, ca.ErrNotConfigured}, ca.ErrNotConfigured},
	} {
		remote := wire.NewRemote(serve(t, c.p), wire.RemoteOptions{})
		found, err := remote.ValidateOnline(t.Context(), nil)
		if !errors.Is(err, c.want) || err == nil && len(found) != 1 {
			t.Errorf("%s: %v, %v", name, found, err)
		}
		if _, err := remote.Validate(t.Context(), nil); err != nil {
			t.Errorf("%s: offline: %v", name, err)
		}
	}
}

// asking is a provider with an online check.
type asking struct {
	*fake
	err error
}

func (a *asking) ValidateOnline(context.Context, map[string]any) ([]wire.Diagnostic, error) {
	return a.found, a.err
}

func TestCertifyingNamesIsAnsweredByTheMetadata(t *testing.T) {
	for _, has := range []bool{true, false} {
		m := wire.Metadata{Name: "acme", Version: "1", Abilities: []wire.Ability{wire.CertificateAuthority}}
		if has {
			m.Abilities = append(m.Abilities, wire.NamesFromRequest)
		}
		remote := wire.NewRemote(serve(t, &fake{metadata: m}), wire.RemoteOptions{})
		if err := remote.CertifiesNames(t.Context()); has != (err == nil) || !has && !errors.Is(err, ca.ErrUnimplemented) {
			t.Errorf("declared %t: %v", has, err)
		}
	}
}
