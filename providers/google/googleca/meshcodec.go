package googleca

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The two messages of google.security.meshca.v1 are encoded by hand. They will not change any
// more: Istio had them in security/proto/providers/google/meshca.proto until it removed Mesh
// CA.
//
//	message MeshCertificateRequest {
//	  string request_id = 1;
//	  string csr = 2;
//	  google.protobuf.Duration validity = 3;
//	  string certificate_authority = 4;
//	}
//	message MeshCertificateResponse {
//	  repeated string cert_chain = 1;
//	}
type (
	meshRequest struct {
		id        string
		csr       []byte
		validity  time.Duration // zero means the server's default
		authority string        // empty means that the server chooses
	}
	meshReply struct{ chain []string }
)

const meshCertChain protowire.Number = 1

// meshCodec is the gRPC codec for the two.
type meshCodec struct{}

func (meshCodec) Name() string { return "proto" }

func (meshCodec) Marshal(message any) ([]byte, error) {
	req, ok := message.(meshRequest)
	if !ok {
		return nil, fmt.Errorf("%T is not Mesh CA's request", message)
	}
	var out []byte
	out = protowire.AppendString(protowire.AppendTag(out, 1, protowire.BytesType), req.id)
	out = protowire.AppendBytes(protowire.AppendTag(out, 2, protowire.BytesType), req.csr)
	if req.validity > 0 {
		validity, err := proto.Marshal(durationpb.New(req.validity))
		if err != nil {
			return nil, err
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, 3, protowire.BytesType), validity)
	}
	if req.authority != "" {
		out = protowire.AppendString(protowire.AppendTag(out, 4, protowire.BytesType), req.authority)
	}
	return out, nil
}

func (meshCodec) Unmarshal(data []byte, message any) error {
	reply, ok := message.(*meshReply)
	if !ok {
		return fmt.Errorf("%T is not Mesh CA's reply", message)
	}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if number == meshCertChain && kind == protowire.BytesType {
			text, n := protowire.ConsumeString(data)
			if n < 0 {
				return protowire.ParseError(n)
			}
			reply.chain, data = append(reply.chain, text), data[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
	}
	return nil
}
