package googleca

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// meshMessages are the protocol's messages as protobuf itself makes them.
func meshMessages(t *testing.T) (request, reply protoreflect.MessageDescriptor) {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, label descriptorpb.FieldDescriptorProto_Label, of string) *descriptorpb.FieldDescriptorProto {
		out := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: &label}
		if of != "" {
			out.TypeName = &of
		}
		return out
	}
	const text, message = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	const one, many = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL, descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("meshca.proto"), Package: new("google.security.meshca.v1"), Syntax: new("proto3"), Dependency: []string{"google/protobuf/duration.proto"},
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: new("MeshCertificateRequest"), Field: []*descriptorpb.FieldDescriptorProto{
				field("request_id", 1, text, one, ""), field("csr", 2, text, one, ""), field("validity", 3, message, one, ".google.protobuf.Duration"),
				field("certificate_authority", 4, text, one, ""),
			}},
			{Name: new("MeshCertificateResponse"), Field: []*descriptorpb.FieldDescriptorProto{
				field("cert_chain", 1, text, many, ""), field("later", 15, text, one, ""),
			}},
		},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages().Get(0), file.Messages().Get(1)
}

// meshServer speaks the protocol on a real socket, by TLS.
type meshServer struct {
	mesh     *catest.CA
	settings Settings

	mu   sync.Mutex
	err  error                            // what the calls are answered with
	lay  func(leaf, root string) []string // how a reply is laid out
	hang bool                             // until the caller goes
	seen []map[protoreflect.Name]any      // the requests
	md   []seen                           // what they came with
}

func startMesh(t *testing.T) *meshServer {
	t.Helper()
	m := &meshServer{mesh: catest.NewCA(catest.Options{}), lay: func(leaf, root string) []string { return []string{leaf, root} }}
	request, reply := meshMessages(t)
	own := catest.NewCA(catest.Options{})
	pair := pairOf(t, own)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "google.security.meshca.v1.MeshCertificateService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "CreateCertificate",
		Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := dynamicpb.NewMessage(request)
			if err := decode(in); err != nil {
				return nil, err
			}
			return m.answer(ctx, in, dynamicpb.NewMessage(reply))
		},
	}}}, m)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	m.settings = Settings{Protocol: MeshCA, Endpoint: "localhost:" + port, RootFile: setting.File(fileOf(t, own.Bundle().PEM())), Location: "us-central1-c"}
	return m
}

func (m *meshServer) answer(ctx context.Context, in, out *dynamicpb.Message) (any, error) {
	fields := map[protoreflect.Name]any{}
	in.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Message() != nil {
			seconds := value.Message().Descriptor().Fields().ByName("seconds")
			fields[field.Name()] = value.Message().Get(seconds).Int()
			return true
		}
		fields[field.Name()] = value.String()
		return true
	})
	m.mu.Lock()
	m.seen, m.md = append(m.seen, fields), append(m.md, callOf(ctx))
	failure, hang, lay := m.err, m.hang, m.lay
	m.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if failure != nil {
		return nil, failure
	}
	reply, err := m.mesh.CSRSign(ctx, ca.SignRequest{CSR: []byte(fields["csr"].(string)), TTL: time.Hour})
	if err != nil {
		return nil, err
	}
	chain := out.Mutable(out.Descriptor().Fields().ByNumber(1)).List()
	for _, text := range lay(string(reply.Chain), string(reply.Roots)) {
		chain.Append(protoreflect.ValueOfString(text))
	}
	out.Set(out.Descriptor().Fields().ByNumber(15), protoreflect.ValueOfString("of a later version"))
	return out, nil
}

func (m *meshServer) open(t *testing.T) *CA {
	t.Helper()
	c, err := Open(t.Context(), m.settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestMeshCARequestFollowsProtocol(t *testing.T) {
	t.Parallel()
	server := startMesh(t)
	server.settings.Location = "https://container.googleapis.com/v1/projects/shop-1/locations/us-central1-c/clusters/c1"
	c := server.open(t)
	req, check := ask(t)
	req.TTL = 1500 * time.Millisecond
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" // as the sdk has it for a call
	for range 2 {
		reply, err := c.CSRSign(metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent), req)
		if err != nil {
			t.Fatal(err)
		}
		check.AskedUntil = time.Time{}
		testkit.Passes(t, reply, check)
	}
	for i, fields := range server.seen {
		if authority, sent := fields["certificate_authority"]; sent {
			t.Errorf("the request names the CA %q, which is not set", authority)
		}
		if fields["request_id"] != theID || fields["csr"] != string(req.CSR) || fields["validity"] != int64(2) {
			t.Errorf("the request is %v", fields)
		}
		for name, want := range map[string]string{"authorization": "Bearer " + theToken.Reveal(), "x-goog-request-params": "location=locations/us-central1-c", "traceparent": parent} {
			if got := server.md[i].metadata[name]; !slices.Equal(got, []string{want}) {
				t.Errorf("the metadata %s are %q", name, got)
			}
		}
		if left := server.md[i].left; left <= 0 || left > patience {
			t.Errorf("the deadline is in %s", left)
		}
	}
	req.TTL = 0
	if _, err := c.CSRSign(t.Context(), req); err != nil || server.seen[2]["validity"] != nil {
		t.Errorf("without a lifetime: %v, %v", server.seen[2], err)
	}
}

func TestMeshCARequestNamesPrivateCA(t *testing.T) {
	t.Parallel()
	const authority = "projects/shop-1/locations/us-central1/certificateAuthorities/mesh"
	server := startMesh(t)
	server.settings.CertificateAuthority = authority
	mustSign(t, server.open(t))
	if got := server.seen[0]["certificate_authority"]; got != authority {
		t.Errorf("the request names the CA %v", got)
	}
}

func TestMeshCAErrorsHaveReasonsAndCostOneCall(t *testing.T) {
	t.Parallel()
	server := startMesh(t)
	c := server.open(t)
	for code, want := range map[codes.Code]*ca.Error{
		codes.Unavailable: ca.ErrUnavailable, codes.PermissionDenied: ca.ErrDenied, codes.Unauthenticated: ca.ErrUnauthenticated,
		codes.InvalidArgument: ca.ErrInvalid, codes.ResourceExhausted: ca.ErrRateLimited,
	} {
		server.seen, server.err = nil, busy(t, code, "not with "+theToken.Reveal())
		req, _ := ask(t)
		_, err := c.CSRSign(t.Context(), req)
		mustBe(t, err, want, server.settings.Endpoint+": not with (secret)")
		if ca.RetryAfter(err) != time.Minute || len(server.seen) != 1 {
			t.Errorf("to come back after %s, %d calls", ca.RetryAfter(err), len(server.seen))
		}
	}
	server.hang = true
	req, _ := ask(t)
	_, err := c.CSRSign(testkit.Within(t, 200*time.Millisecond), req)
	mustBe(t, err, ca.ErrDeadline, server.settings.Endpoint)
}

func TestMeshCAReplyNeedsLeafAndRoots(t *testing.T) {
	t.Parallel()
	server := startMesh(t)
	c := server.open(t)
	for says, lay := range map[string]func(leaf, root string) []string{
		"has 0 elements, want at least two":          func(_, _ string) []string { return nil },
		"has 1 elements":                             func(l, _ string) []string { return []string{l} },
		"has no roots":                               func(l, _ string) []string { return []string{l, l} },
		"has roots and no leaf":                      func(_, r string) []string { return []string{r, r} },
		"element 1 of 2 of the reply's cert_chain: ": func(_, r string) []string { return []string{"hello", r} },
	} {
		server.lay = lay
		mustFail(t, c, ca.ErrInternal, server.settings.Endpoint, says)
	}
	server.lay = func(l, r string) []string { return []string{l, r, r} }
	if chain := mustSign(t, c); len(chain.Certificates) != 1 {
		t.Errorf("%d certificates in the chain", len(chain.Certificates))
	}
}

func TestMeshCASignsOnlySPIFFEIDsAndRootsComeInReplies(t *testing.T) {
	t.Parallel()
	server := startMesh(t)
	c := server.open(t)
	_, csr := testkit.CSR(t, testkit.Identity(t, webID, []string{"web.shop.svc"}, nil))
	_, err := c.CSRSign(t.Context(), ca.SignRequest{ID: theID, CSR: csr, SubjectID: webID, DNSNames: []string{"web.shop.svc"}, Token: theToken})
	mustBe(t, err, ca.ErrInvalid, "protocol meshca")
	_, err = c.Roots(t.Context())
	mustBe(t, err, ca.ErrUnimplemented)
	mustBe(t, c.WatchRoots(t.Context(), func([]byte) error { return nil }), ca.ErrUnimplemented)
	if len(server.seen) > 0 {
		t.Error("it was asked")
	}
}

func TestMeshCAConnectionErrorNamesServer(t *testing.T) {
	t.Parallel()
	server := startMesh(t)
	server.settings.Endpoint = "localhost:1"
	req, _ := ask(t)
	_, err := server.open(t).CSRSign(testkit.Within(t, time.Minute), req)
	mustBe(t, err, ca.ErrUnavailable, "localhost:1")
}

// FuzzMeshReply: whatever a server sends is a reply or an error, and protobuf
// agrees.
func FuzzMeshReply(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x0a\x03abc\x0a\x01d"))
	f.Add([]byte("\x0a\xff\xff\xff\xff\x0fabc"))
	f.Add([]byte("\x10\x01\x1a\x02xy\x25\x00\x00\x00\x00\x2b\x2c\x31\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, descriptor := meshMessages(t)
		var got meshReply
		message := dynamicpb.NewMessage(descriptor)
		err, want := (meshCodec{}).Unmarshal(data, &got), proto.Unmarshal(data, message)
		if want != nil {
			return // it refuses text that is not UTF-8, too, which is not PEM then
		}
		chain := message.Get(descriptor.Fields().ByNumber(1)).List()
		if err != nil || chain.Len() != len(got.chain) {
			t.Fatalf("%v, %d elements, protobuf has %d", err, len(got.chain), chain.Len())
		}
		for i, text := range got.chain {
			if chain.Get(i).String() != text {
				t.Errorf("element %d is %q", i, text)
			}
		}
	})
}
