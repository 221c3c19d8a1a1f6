package wire

import (
	"net/netip"
	"strings"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// The limits of a request and a reply: numbers of names, everything else in bytes. A CSR with
// an RSA 4096 key and 100 names has less than 8 KiB, a projected token less than 4 KiB.
const (
	maxCSR       = 64 << 10
	maxSubjectID = 2048 // SPIFFE-ID, section 2.4
	maxNames     = 1000
	maxDNSName   = 253
	maxToken     = 64 << 10
	maxPEM       = 1 << 20
	maxWord      = 2048 // an audience, a resource, a scope, a URN
)

// SignRequestToProto checks req as the other side does and converts it. An error is
// [ca.ErrInvalid].
func SignRequestToProto(req ca.SignRequest) (*providerv1.CSRSignRequest, error) {
	if err := checkSignRequest(req); err != nil {
		return nil, err
	}
	out := &providerv1.CSRSignRequest{
		RequestId: req.ID, Csr: req.CSR, SubjectId: req.SubjectID, DnsNames: req.DNSNames, Token: req.Token.Reveal(),
		Requester: CleanText(req.Requester, req.Token),
	}
	for _, ip := range req.IPAddresses {
		out.IpAddresses = append(out.IpAddresses, ip.String())
	}
	if req.TTL > 0 {
		out.Ttl = durationpb.New(req.TTL)
	}
	return out, nil
}

// SignRequestFromProto converts a message of the other side and checks it. An error is
// [ca.ErrInvalid].
func SignRequestFromProto(in *providerv1.CSRSignRequest) (ca.SignRequest, error) {
	req := ca.SignRequest{
		ID: in.GetRequestId(), CSR: in.GetCsr(), SubjectID: in.GetSubjectId(), DNSNames: in.GetDnsNames(), Token: ca.Token(in.GetToken()),
		Requester: CleanText(in.GetRequester(), ca.Token(in.GetToken())),
	}
	if n := len(in.GetIpAddresses()); n > maxNames {
		return ca.SignRequest{}, ca.Errorf(ca.Invalid, "the request has %d IP addresses, %d are allowed", n, maxNames)
	}
	for _, text := range in.GetIpAddresses() {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return ca.SignRequest{}, ca.Errorf(ca.Invalid, "the request's IP address %q does not parse", CleanText(text, ""))
		}
		req.IPAddresses = append(req.IPAddresses, ip)
	}
	if ttl := in.GetTtl(); ttl != nil {
		if !ttl.IsValid() {
			return ca.SignRequest{}, ca.Errorf(ca.Invalid, "the request's lifetime is not a valid duration")
		}
		req.TTL = ttl.AsDuration()
	}
	if err := checkSignRequest(req); err != nil {
		return ca.SignRequest{}, err
	}
	return req, nil
}

func checkSignRequest(req ca.SignRequest) error {
	switch {
	case !isUUID(req.ID):
		return ca.Errorf(ca.Invalid, "the request's ID is %q, want a UUID", CleanText(req.ID, req.Token))
	case len(req.CSR) > maxCSR:
		return ca.Errorf(ca.Invalid, "the CSR has %d bytes, %d are allowed", len(req.CSR), maxCSR)
	case !isOnePEM(req.CSR, "CERTIFICATE REQUEST"):
		return ca.Errorf(ca.Invalid, "the CSR is not one PEM block of type CERTIFICATE REQUEST")
	case req.SubjectID != "" && !strings.HasPrefix(req.SubjectID, "spiffe://") || len(req.SubjectID) > maxSubjectID || strings.ContainsFunc(req.SubjectID, unicode.IsControl):
		return ca.Errorf(ca.Invalid, "the subject ID %q is not a SPIFFE ID of at most %d bytes", CleanText(req.SubjectID, req.Token), maxSubjectID)
	case len(req.DNSNames) > maxNames || len(req.IPAddresses) > maxNames:
		return ca.Errorf(ca.Invalid, "the request has %d DNS names and %d IP addresses, %d of each are allowed", len(req.DNSNames), len(req.IPAddresses), maxNames)
	case req.TTL < 0:
		return ca.Errorf(ca.Invalid, "the request's lifetime is %s, want a positive one or zero", req.TTL)
	}
	for _, name := range req.DNSNames {
		if name == "" || len(name) > maxDNSName || strings.ContainsFunc(name, unicode.IsControl) {
			return ca.Errorf(ca.Invalid, "the DNS name %q does not have 1 to %d printable bytes", CleanText(name, req.Token), maxDNSName)
		}
	}
	for _, ip := range req.IPAddresses {
		if !ip.IsValid() || ip.Zone() != "" {
			return ca.Errorf(ca.Invalid, "the IP address %q is invalid or has a zone", CleanText(ip.String(), ""))
		}
	}
	return checkToken(req.Token)
}

// checkToken refuses what could break out of a header.
func checkToken(token ca.Token) error {
	text := token.Reveal()
	if len(text) > maxToken {
		return ca.Errorf(ca.Invalid, "the token has %d bytes, %d are allowed", len(text), maxToken)
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return ca.Errorf(ca.Invalid, "the token contains control characters")
	}
	return nil
}

// isUUID reports whether s has the textual form of RFC 9562, section 4, of any version.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range []byte(s) {
		hyphen := i == 8 || i == 13 || i == 18 || i == 23
		if hyphen != (c == '-') || !hyphen && !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
			return false
		}
	}
	return true
}

func isOnePEM(text []byte, blockType string) bool {
	n := 0
	for block, err := range pki.Blocks(text) {
		if n++; n > 1 || err != nil || block.Type != blockType {
			return false
		}
	}
	return n == 1
}

// CertificateToProto converts the reply.
func CertificateToProto(cert ca.Certificate) *providerv1.CSRSignResponse {
	return &providerv1.CSRSignResponse{Chain: cert.Chain, Roots: cert.Roots}
}

// CertificateFromProto converts the reply and checks its size. Its caller verifies the chain:
// see package pki.
func CertificateFromProto(in *providerv1.CSRSignResponse) (ca.Certificate, error) {
	cert := ca.Certificate{Chain: in.GetChain(), Roots: in.GetRoots()}
	if len(cert.Chain) == 0 {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "the provider answered without a chain")
	}
	if len(cert.Chain) > maxPEM || len(cert.Roots) > maxPEM {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "the provider answered with %d bytes of chain and %d of roots, %d of each are allowed", len(cert.Chain), len(cert.Roots), maxPEM)
	}
	return cert, nil
}

func checkRoots(roots []byte) error {
	if len(roots) == 0 || len(roots) > maxPEM {
		return ca.Errorf(ca.Internal, "the provider answered with %d bytes of roots, want 1 to %d", len(roots), maxPEM)
	}
	return nil
}
