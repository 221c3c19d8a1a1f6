package conformance

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func refusalChecks() []Check {
	good := []string{"SET-06"}
	return []Check{
		{"DENY-01", Sign, "It rejects a malformed CSR as invalid.", "A retry cannot help.", good, nonsenseIsInvalid},
		{"DENY-02", Sign, "It rejects a CSR with a wrong signature as invalid.", "Its sender does not have the key.", good, unprovenIsInvalid},
		{"DENY-03", Sign, "A refusal gives its reason in one line.", "It is all that an operator sees.", []string{"DENY-01"}, refusalHasWords},
		{"DENY-04", Sign, "No refusal quotes the token.", "Errors are logged, shown and passed on.", []string{"DENY-01"}, refusalWithoutToken},
		{"DENY-05", Sign, "It rejects the kit's refused identity as denied or invalid.", "The host then pauses; after any other error it retries again and again.", good, strangerIsDenied},
		{"DENY-06", Sign, "For an invalid token it returns unauthenticated or denied.", "The host then reads the token again, which may have been replaced.", good, tokenIsRefused},
		{"DENY-07", Sign, "For a missing token that is required it returns unauthenticated, denied or invalid.", "A missing credential must not pass as an unnecessary one.", good, tokenIsMissing},
	}
}

// nonsenseCSR returns PEM whose content no parser accepts.
func nonsenseCSR() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("this is no PKCS #10 request")})
}

// refusal returns the error for a bad request.
func (s *Session) refusal(ctx context.Context, change func(*ca.SignRequest)) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	req, _, err := s.good()
	if err != nil {
		return err
	}
	change(&req)
	ctx, cancel := s.call(ctx)
	defer cancel()
	_, err = i.CSRSign(ctx, req)
	return err
}

// mustBe checks that err has one of these reasons.
func mustBe(err error, reasons ...ca.Reason) error {
	if _, unrun := errors.AsType[notRunError](err); unrun {
		return err
	}
	if err == nil || !slices.Contains(reasons, ca.ReasonFor(err)) {
		return fmt.Errorf("it answers %w", orNone(err))
	}
	return nil
}

func nonsenseIsInvalid(ctx context.Context, s *Session) error {
	return mustBe(s.refusal(ctx, func(req *ca.SignRequest) { req.CSR = nonsenseCSR() }), ca.Invalid)
}

func unprovenIsInvalid(ctx context.Context, s *Session) error {
	return mustBe(s.refusal(ctx, func(req *ca.SignRequest) { req.CSR = unproven(req.CSR) }), ca.Invalid)
}

// unproven flips the last bit of a CSR's signature.
func unproven(csr []byte) []byte {
	for block, err := range pki.Blocks(csr) {
		if err != nil {
			break
		}
		block.Bytes[len(block.Bytes)-1] ^= 1
		return pem.EncodeToMemory(block)
	}
	return nil
}

// refusals returns the errors of everything the kit declares as refused.
func (s *Session) refusals(ctx context.Context) []error {
	errs := []error{s.refusal(ctx, func(req *ca.SignRequest) { req.CSR = nonsenseCSR() })}
	if s.Kit.RefusedToken != "" {
		errs = append(errs, s.refusal(ctx, func(req *ca.SignRequest) { req.Token = s.Kit.RefusedToken }))
	}
	if req, _, err := s.Request(s.Kit.RefusedIdentity, pki.ECDSAP256); err == nil {
		errs = append(errs, s.refusal(ctx, func(r *ca.SignRequest) { *r = req }))
	}
	return errs
}

func refusalHasWords(ctx context.Context, s *Session) error {
	for _, err := range s.refusals(ctx) {
		e, ok := errors.AsType[*ca.Error](err)
		if !ok {
			continue
		}
		if text := e.Message; text == "" && e.Err == nil || strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("it says %q", e.Error())
		}
	}
	return nil
}

func refusalWithoutToken(ctx context.Context, s *Session) error {
	for _, err := range s.refusals(ctx) {
		if text := fmt.Sprintf("%v %+v", err, err); s.Shows(text) {
			return errors.New("the token is in the error's text")
		}
	}
	return nil
}

// Shows reports whether text contains one of the session's tokens or a large part of one.
func (s *Session) Shows(text string) bool {
	for _, token := range s.tokens() {
		whole := token.Reveal()
		for _, piece := range []string{whole, whole[:len(whole)/2], whole[len(whole)/2:]} {
			if len(piece) >= 8 && strings.Contains(text, piece) {
				return true
			}
		}
	}
	return false
}

func strangerIsDenied(ctx context.Context, s *Session) error {
	if s.Kit.RefusedIdentity.none() {
		return needs("refused_identity", "")
	}
	other, _, err := s.Request(s.Kit.RefusedIdentity, pki.ECDSAP256)
	if err != nil {
		return err
	}
	return mustBe(s.refusal(ctx, func(req *ca.SignRequest) { *req = other }), ca.Denied, ca.Invalid)
}

var errTokenIgnored = NotRun("by the kit, the CA ignores tokens")

func tokenIsRefused(ctx context.Context, s *Session) error {
	if s.Kit.TokenIgnored {
		return errTokenIgnored
	}
	if s.Kit.RefusedToken == "" {
		return needs("refused_token_file", ", with an expired token for instance")
	}
	return mustBe(s.refusal(ctx, func(req *ca.SignRequest) { req.Token = s.Kit.RefusedToken }), ca.Unauthenticated, ca.Denied)
}

func tokenIsMissing(ctx context.Context, s *Session) error {
	if s.Kit.TokenIgnored {
		return errTokenIgnored
	}
	if !s.tokenRequired() {
		return needs("token_required", ", where a token is")
	}
	return mustBe(s.refusal(ctx, func(req *ca.SignRequest) { req.Token = "" }), ca.Unauthenticated, ca.Denied, ca.Invalid)
}

// wishIsNoCommand requests a certificate that may sign others.
func wishIsNoCommand(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	req, err := s.wish()
	if err != nil {
		return err
	}
	cert, err := i.CSRSign(ctx, req)
	if err != nil {
		return mustBe(err, ca.Invalid, ca.Denied)
	}
	certs, err := pki.ParseCertificates(cert.Chain)
	if err == nil && (certs[0].IsCA || certs[0].KeyUsage&x509.KeyUsageCertSign != 0) {
		return errors.New("it got a CA certificate")
	}
	return err
}

// wish returns a good request whose CSR adds the basic constraint CA.
func (s *Session) wish() (ca.SignRequest, error) {
	req, _, err := s.good()
	if err != nil {
		return req, err
	}
	good, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return req, err
	}
	key, err := newKey(pki.ECDSAP256)
	if err != nil {
		return req, err
	}
	isCA, err := asn1.Marshal(struct{ CA bool }{true})
	if err != nil {
		return req, err
	}
	extensions := append(slices.Clone(good.Extensions), pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: isCA})
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{ExtraExtensions: extensions}, key)
	req.CSR = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return req, err
}

// Tease makes calls of every kind that carry a token, both accepted and refused.
func (s *Session) Tease(ctx context.Context, p wire.Provider) {
	ctx, cancel := s.call(ctx)
	defer cancel()
	for _, change := range []func(*ca.SignRequest){
		func(*ca.SignRequest) {},
		func(req *ca.SignRequest) { req.CSR = nonsenseCSR() },
		func(req *ca.SignRequest) { req.Token = s.Kit.RefusedToken },
		func(req *ca.SignRequest) { req.SubjectID = s.Kit.RefusedIdentity.SPIFFEID },
	} {
		if req, _, err := s.good(); err == nil {
			change(&req)
			_, _ = p.CSRSign(ctx, req) // only side effects matter
		}
	}
	for _, token := range s.tokens() {
		req := s.Kit.Exchange
		req.SubjectToken = token
		_, _ = p.ExchangeToken(ctx, req)
	}
}
