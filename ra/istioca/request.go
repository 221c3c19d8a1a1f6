package istioca

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/ra"
)

// The keys of a request's Struct that are read. Others are ignored, as clients may have new
// ones.
const (
	impersonatedKey = "ImpersonatedIdentity"
	certSignerKey   = "CertSigner"
)

// forever is a lifetime that any rule shortens.
const forever = 100 * 365 * 24 * time.Hour

// asked is what a request asks for.
type asked struct {
	csr  []byte
	ttl  time.Duration
	door string
	// impersonated is the SPIFFE ID that a node proxy asks for, "" if it asks for its own.
	impersonated string
}

// read checks a request, all but the CSR, which the engine reads.
func (s *Server) read(request *security.IstioCertificateRequest) (asked, *fault) {
	var out asked
	fields := request.GetMetadata()
	switch size := proto.Size(fields); {
	case len(request.GetCsr()) > s.cfg.Limits.CSR:
		return out, malformed("the CSR has %d bytes, %d are allowed", len(request.GetCsr()), s.cfg.Limits.CSR)
	case size > s.cfg.Limits.Metadata:
		return out, malformed("the metadata has %d bytes, %d are allowed", size, s.cfg.Limits.Metadata)
	case request.GetValidityDuration() < 0:
		return out, malformed("validity_duration is %d seconds: use more than 0, or 0 for the longest that is granted", request.GetValidityDuration())
	}
	out.csr = []byte(request.GetCsr())
	out.ttl = time.Duration(min(request.GetValidityDuration(), int64(forever/time.Second))) * time.Second
	signer, err := textIn(fields, certSignerKey)
	if err == nil {
		out.impersonated, err = textIn(fields, impersonatedKey)
	}
	if err != nil {
		return out, malformed("%s", err)
	}
	return out, s.choose(&out, signer)
}

// choose takes the door of a CertSigner, whose rules decide on the authority.
func (s *Server) choose(a *asked, signer string) *fault {
	if signer != "" && !slices.Contains(s.callers.Load().CertSigners, signer) {
		return faultf(Denied, codes.PermissionDenied, "no rule allows the CertSigner %.128q", signer)
	}
	a.door = doorOf(signer)
	return nil
}

// textIn returns a text of a Struct, "" if there is none: Istio's agent sends CertSigner in each
// request, empty unless it is configured. Another type is an error of the client.
func textIn(fields *structpb.Struct, key string) (string, error) {
	value, there := fields.GetFields()[key]
	if _, ok := value.GetKind().(*structpb.Value_StringValue); there && !ok {
		return "", fmt.Errorf("invalid metadata %s: must be a string", key)
	}
	return value.GetStringValue(), nil
}

func malformed(format string, args ...any) *fault {
	return faultf(Malformed, codes.InvalidArgument, format, args...)
}

// checkNames holds the names of a CSR against those that the policy gives. It may have fewer:
// sidecars and ztunnel name their SPIFFE ID alone, and a CSR without names leaves them to the
// policy.
func checkNames(o *ra.Order) *fault {
	_, names, err := o.ParsedCSR()
	if err != nil {
		return malformed("the CSR: %s", err)
	}
	granted := o.Decision().Identity
	given := granted.Names()
	if slices.ContainsFunc(names.Names(), func(name string) bool { return !slices.Contains(given, name) }) {
		return denied("the CSR names %.100q, and the policy gives %.100q", names.String(), granted.String())
	}
	return nil
}
