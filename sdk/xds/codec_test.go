package xds

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"
)

// marshal returns what a stream sends, in its buffers.
func marshal(t rapid.TB, c encoding.CodecV2, message proto.Message) mem.BufferSlice {
	t.Helper()
	out, err := c.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// drawnAnswer is a complete answer of any resources, which several streams have.
func drawnAnswer(t *rapid.T) *answer {
	body := rapid.Custom(func(t *rapid.T) *anypb.Any {
		if rapid.IntRange(0, 9).Draw(t, "nil") == 0 {
			return nil
		}
		body := &anypb.Any{TypeUrl: rapid.String().Draw(t, "type"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value")}
		body.ProtoReflect().SetUnknown(drawnUnknown(t))
		return body
	})
	return &answer{bodies: rapid.SliceOfN(body, 0, 20).Draw(t, "bodies")}
}

// drawnUnknown is a field of a later version of a message, or none.
func drawnUnknown(t *rapid.T) []byte {
	if !rapid.Bool().Draw(t, "unknown") {
		return nil
	}
	tag := protowire.AppendTag(nil, 1000, protowire.BytesType)
	return protowire.AppendBytes(tag, rapid.SliceOf(rapid.Byte()).Draw(t, "field"))
}

// drawnResponse is one with bodies and anything else that a response can have.
func drawnResponse(t *rapid.T, bodies []*anypb.Any) *discovery.DiscoveryResponse {
	response := &discovery.DiscoveryResponse{
		VersionInfo: rapid.String().Draw(t, "version"), TypeUrl: rapid.String().Draw(t, "url"), Nonce: rapid.String().Draw(t, "nonce"),
		Canary: rapid.Bool().Draw(t, "canary"), Resources: bodies,
	}
	if id := rapid.String().Draw(t, "control plane"); id != "" {
		response.ControlPlane = &core.ControlPlane{Identifier: id}
	}
	for _, name := range rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "errors") {
		response.ResourceErrors = append(response.ResourceErrors, &discovery.ResourceError{ResourceName: &discovery.ResourceName{Name: name}})
	}
	response.ProtoReflect().SetUnknown(drawnUnknown(t))
	return response
}

func TestCodecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other := drawnAnswer(t), drawnAnswer(t)
		all := &answers{last: []*answer{one, other}}
		c := codec{CodecV2: encoding.GetCodecV2(grpcproto.Name), answers: []*answers{{}, all}}
		for range 6 {
			bodies := rapid.SampledFrom([][]*anypb.Any{one.bodies, other.bodies, one.bodies[:len(one.bodies)/2], drawnAnswer(t).bodies}).Draw(t, "bodies")
			response := drawnResponse(t, bodies)
			want, err := proto.Marshal(response)
			if err != nil {
				t.Fatal(err)
			}
			sent := marshal(t, c, response).Materialize()
			var got, read discovery.DiscoveryResponse
			if err := proto.Unmarshal(sent, &got); err != nil {
				t.Fatal(err)
			}
			if err := proto.Unmarshal(want, &read); err != nil {
				t.Fatal(err)
			}
			if len(sent) != len(want) || !proto.Equal(&got, &read) {
				t.Fatalf("%d bytes are read as %v, want %d as %v", len(sent), &got, len(want), &read)
			}
		}
	})
}

func TestStreamsWithSameResourcesShareBytes(t *testing.T) {
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		// gRPC's buffer does not hold what is as short as this, which a collection would take.
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		s.have("a", "b")
		shared := func(version string) []byte {
			t.Helper()
			var last mem.BufferSlice
			for range 3 {
				c := b.dial("")
				c.ask()
				c.gets("a=1", "b="+version)
				sent := marshal(t, b.engine.Codec(), c.last)
				if len(last) > 1 && &last[1].ReadOnlyData()[0] != &sent[1].ReadOnlyData()[0] {
					t.Error("the resources of an answer are marshalled twice")
				}
				last = sent
			}
			if len(last) != 2 {
				t.Fatalf("the third stream sends %d buffers, want its own and the shared one", len(last))
			}
			return last[1].ReadOnlyData()
		}
		first := shared("1")
		s.set("b", "2") // as many resources, as many bytes
		if second := shared("2"); bytes.Equal(first, second) || len(first) != len(second) {
			t.Errorf("the resources are sent as %q and after the change as %q", first, second)
		}
	})
}

func TestUnsharedAnswerIsNotKept(t *testing.T) {
	withCatalog(t, true, func(t *testing.T, b *bench, s *catalog) {
		s.have("a")
		c := b.dial("")
		c.ask()
		c.gets("a=1")
		if sent := marshal(t, b.engine.Codec(), c.last); len(sent) != 1 {
			t.Errorf("%d buffers are sent, want one of gRPC's own codec", len(sent))
		}
		if kept := b.engine.sotw[0].answers.last[0].encoded.bytes.Value(); kept != nil {
			t.Errorf("%q is kept", *kept)
		}
	})
}

func TestSharedBytesAreKeptWhileAStreamNeedsThem(t *testing.T) {
	a := &answer{bodies: []*anypb.Any{bodyOf(strings.Repeat("a", 10_000))}}
	a.encode()
	first, second := a.encode(), a.encode()
	want := &first.ReadOnlyData()[0]
	first.Free()
	runtime.GC()
	third := a.encode()
	if &third.ReadOnlyData()[0] != want || &second.ReadOnlyData()[0] != want {
		t.Error("the resources are marshalled anew while a stream has them")
	}
	second.Free()
	third.Free()
	runtime.GC()
	if kept := a.encoded.bytes.Value(); kept != nil {
		t.Errorf("%d bytes are kept", len(*kept))
	}
	if again := a.encode(); !bytes.Equal(again.ReadOnlyData(), encodedOf(t, a)) {
		t.Error("made anew they are others")
	}
}

func encodedOf(t *testing.T, a *answer) []byte {
	t.Helper()
	out, err := proto.Marshal(&discovery.DiscoveryResponse{Resources: a.bodies})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestUnmarshalableAnswerIsAnErrorForEachStream(t *testing.T) {
	bad := &answer{bodies: []*anypb.Any{{TypeUrl: "\xff"}}}
	c := codec{CodecV2: encoding.GetCodecV2(grpcproto.Name), answers: []*answers{{last: []*answer{bad}}}}
	for range 2 {
		if sent, err := c.Marshal(&discovery.DiscoveryResponse{Resources: bad.bodies}); err == nil {
			t.Errorf("%q is sent, which is no UTF-8", sent.Materialize())
		}
	}
	good := &answer{bodies: []*anypb.Any{bodyOf("a")}}
	c.answers[0].last = []*answer{good}
	for range 2 {
		if sent, err := c.Marshal(&discovery.DiscoveryResponse{Resources: good.bodies, Nonce: "\xff"}); err == nil {
			t.Errorf("%q is sent, which is no UTF-8", sent.Materialize())
		}
	}
}

func TestOtherMessagesUseGRPCCodec(t *testing.T) {
	b := newBench(t, Config[string]{}, newMemorySource())
	c, own := b.engine.Codec(), encoding.GetCodecV2(grpcproto.Name)
	if c.Name() != own.Name() {
		t.Errorf("the codec is called %q", c.Name())
	}
	for _, message := range []proto.Message{
		&healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING},
		&discovery.DeltaDiscoveryResponse{Nonce: "1", Resources: []*discovery.Resource{{Name: "a", Resource: bodyOf("a")}}},
		&discovery.DiscoveryResponse{Nonce: "1", Resources: []*anypb.Any{bodyOf("a")}},
		&discovery.DiscoveryResponse{},
	} {
		sent := marshal(t, c, message)
		if want := marshal(t, own, message).Materialize(); !bytes.Equal(sent.Materialize(), want) {
			t.Errorf("%T is sent as %q, want %q", message, sent.Materialize(), want)
		}
		got := message.ProtoReflect().New().Interface()
		if err := c.Unmarshal(sent, got); err != nil || !proto.Equal(got, message) {
			t.Errorf("read is %v, %v, want %v", got, err, message)
		}
	}
	if _, err := c.Marshal("text"); err == nil {
		t.Error("a text is sent")
	}
}

// old is a codec of gRPC's old kind.
type old struct{}

func (old) Marshal(any) ([]byte, error)        { return nil, nil }
func (old) Unmarshal(data []byte, v any) error { return nil }
func (old) Name() string                       { return grpcproto.Name }

func TestOldCodecIsLeftAlone(t *testing.T) {
	own := encoding.GetCodecV2(grpcproto.Name)
	encoding.RegisterCodec(old{})
	defer encoding.RegisterCodecV2(own)
	b := newBench(t, Config[string]{}, newMemorySource())
	if c := b.engine.Codec(); c != nil {
		t.Errorf("got the codec %v, want none", c)
	}
}
