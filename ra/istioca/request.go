package istioca

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	security "istio.io/api/security/v1alpha1"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// The keys of a request's Struct that are read. Others are ignored, as clients may have new
// ones.
const (
	impersonatedKey = "ImpersonatedIdentity"
	certSignerKey   = "CertSigner"
)

// forever is a lifetime that any rule shortens.
const forever = 100 * 365 * 24 * time.Hour

// order is what a request asks for.
type order struct {
	csr  []byte
	ttl  time.Duration
	door string
	// impersonated is the SPIFFE ID of whom a node proxy asks for, "" if it asks for itself.
	impersonated string
}

// read checks a request, all but the CSR, which the engine reads.
func (s *Server) read(request *security.IstioCertificateRequest) (order, *fault) {
	var out order
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
func (s *Server) choose(o *order, signer string) *fault {
	if signer != "" && !slices.Contains(s.callers.Load().CertSigners, signer) {
		return faultf(Denied, codes.PermissionDenied, "no rule allows anybody the CertSigner %.128q", signer)
	}
	o.door = doorOf(signer)
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
func checkNames(csr []byte, granted pki.Identity) *fault {
	parsed, err := pki.ParseCSR(csr)
	if err != nil {
		return malformed("%s", err)
	}
	names, err := pki.IdentityOfCSR(parsed)
	if err != nil {
		return malformed("the CSR: %s", err)
	}
	given := granted.Names()
	if slices.ContainsFunc(names.Names(), func(name string) bool { return !slices.Contains(given, name) }) {
		return faultf(Denied, codes.PermissionDenied, "the CSR names %.100q, and the policy gives %.100q", names.String(), granted.String())
	}
	return nil
}

// try returns what the policy gives a subject.
func (s *Server) try(subject ra.Subject, door string) (pki.Identity, *fault) {
	granted := s.cfg.Issuer.Decide(subject, door)
	if granted.Denied != "" {
		return pki.Identity{}, faultf(Denied, codes.PermissionDenied, "%s", granted.Denied)
	}
	return granted.Identity, nil
}
