package awspca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// authority is a CA of the service: a root, and a CA below it that signs.
type authority struct {
	root, own *x509.Certificate
	key       crypto.Signer
	end       time.Time
}

func newAuthority(kind pki.KeyType) *authority {
	end := time.Now().Add(90 * 24 * time.Hour)
	rootKey, root := certify("root", nil, nil, kind, end)
	key, own := certify("sub", root, rootKey, kind, end)
	return &authority{root, own, key, end}
}

// certify makes a CA below another, or a root.
func certify(name string, above *x509.Certificate, by crypto.Signer, kind pki.KeyType, end time.Time) (crypto.Signer, *x509.Certificate) {
	key, err := pki.GenerateKey(kind)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if above == nil {
		above, by = template, key
	}
	return key, make509(template, above, key.Public(), by)
}

func make509(template, above *x509.Certificate, key crypto.PublicKey, by crypto.Signer) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, above, key, by)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return cert
}

func serial() *big.Int {
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err)
	}
	return number
}

func pemOf(certs ...*x509.Certificate) string { return string(pki.EncodeCertificates(certs)) }

// service is AWS Private CA, and AWS's token service, as their API references describe them.
// It is stricter than AWS where that is vague, except that a CSR without names is taken with
// those of the call.
type service struct {
	mu      sync.Mutex
	by      *authority
	keys    map[string]aws.Credentials // by ID
	jwt     string                     // that the token service accepts
	state   string
	usage   string
	delay   int // polls before a certificate is there
	issued  map[string]*issued
	tokens  map[string]idempotent
	planned map[string][]http.HandlerFunc
	calls   []call
	*httptest.Server
}

type issued struct {
	cert, chain string
	polls       int
	leaf        *x509.Certificate
}

type idempotent struct {
	arn string
	at  time.Time
}

// call is one that the service got.
type call struct {
	name string
	body []byte
	form url.Values
}

func newService(kind pki.KeyType) *service {
	return &service{
		by: newAuthority(kind), state: "ACTIVE", usage: "GENERAL_PURPOSE", jwt: theJWT.Reveal(),
		keys:   map[string]aws.Credentials{theKeys.AccessKeyID: theKeys},
		issued: map[string]*issued{}, tokens: map[string]idempotent{}, planned: map[string][]http.HandlerFunc{},
	}
}

// RoundTrip answers in memory, so that tests may run in virtual time. It ends a call when Open's
// transport does.
func (s *service) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), callTimeout)
	defer cancel()
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, req.WithContext(ctx))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reply := recorder.Result()
	reply.Request = req
	return reply, nil
}

// listen has the service answer on a socket, by TLS.
func (s *service) listen(t *testing.T) {
	t.Helper()
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
}

func (s *service) rootFile(t *testing.T) string {
	t.Helper()
	return fileOf(t, pki.EncodeCertificates([]*x509.Certificate{s.Certificate()}))
}

// next plans answers to the next calls of a name.
func (s *service) next(name string, answers ...http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planned[name] = append(s.planned[name], answers...)
}

func (s *service) plannedFor(name string) http.HandlerFunc {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := s.planned[name]
	if len(answers) == 0 {
		return nil
	}
	s.planned[name] = answers[1:]
	return answers[0]
}

// count returns how often the service was called by a name.
func (s *service) count(name string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.name == name {
			n++
		}
	}
	return n
}

// last returns the last call of a name.
func (s *service) last(t *testing.T, name string) call {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range slices.Backward(s.calls) {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("there was no call of %s", name)
	return call{}
}

func (s *service) certificates() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.issued)
}

// set changes the service's state.
func (s *service) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *service) roots() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pki.NewBundle(s.by.root).PEM()
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/" {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	name, private := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "ACMPrivateCA.")
	form, _ := url.ParseQuery(string(body))
	if !private {
		name = form.Get("Action")
	}
	s.mu.Lock()
	s.calls = append(s.calls, call{name, body, form})
	s.mu.Unlock()
	switch answer := s.plannedFor(name); {
	case answer != nil:
		answer(w, r)
	case private:
		s.private(w, r, name, body)
	default:
		s.sts(w, r, name, body, form)
	}
}

// refuse answers with an error of the service's JSON protocol.
func refuse(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": message})
	}
}

// saying answers with a body.
func saying(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// hanging answers nothing until its caller goes away.
func hanging(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func (s *service) private(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	if code, says := s.signed(r, body, "acm-pca"); code != "" {
		refuse(http.StatusBadRequest, code, says)(w, r)
		return
	}
	if r.Header.Get("Content-Type") != "application/x-amz-json-1.1" {
		refuse(http.StatusBadRequest, "SerializationException", "not JSON 1.1")(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := map[string]func([]byte) (any, *fault){
		"IssueCertificate": s.issueCertificate, "GetCertificate": s.getCertificate,
		"GetCertificateAuthorityCertificate": s.authorityCertificate, "DescribeCertificateAuthority": s.describe,
	}[name]
	if answer == nil {
		refuse(http.StatusBadRequest, "UnknownOperationException", name)(w, r)
		return
	}
	out, wrong := answer(body)
	if wrong != nil {
		refuse(http.StatusBadRequest, wrong.code, wrong.says)(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(out)
}

// signed checks the signature of a call (SigV4).
func (s *service) signed(r *http.Request, body []byte, service string) (code, says string) {
	given := r.Header.Get("Authorization")
	rest, ok := strings.CutPrefix(given, "AWS4-HMAC-SHA256 Credential=")
	if !ok {
		return "MissingAuthenticationTokenException", "Missing Authentication Token"
	}
	id, rest, _ := strings.Cut(rest, "/")
	_, rest, _ = strings.Cut(rest, "SignedHeaders=")
	names, _, _ := strings.Cut(rest, ",")
	s.mu.Lock()
	creds, known := s.keys[id]
	s.mu.Unlock()
	when, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	switch age := time.Since(when); {
	case !known || r.Header.Get("X-Amz-Security-Token") != creds.SessionToken:
		return "UnrecognizedClientException", "The security token included in the request is invalid."
	case err != nil || age > 5*time.Minute || age < -5*time.Minute:
		return "InvalidSignatureException", "Signature expired"
	case !strings.Contains(names, "host") || service == "acm-pca" && !strings.Contains(names, "x-amz-target"):
		return "IncompleteSignatureException", "unsigned headers"
	}
	again, _ := http.NewRequestWithContext(r.Context(), r.Method, "https://"+r.Host+"/", bytes.NewReader(body))
	if r.Host == "" {
		again.URL.Host = r.URL.Host
	}
	for name := range strings.SplitSeq(names, ";") {
		if value := r.Header.Get(name); value != "" && !strings.EqualFold(name, "content-length") {
			again.Header.Set(name, value)
		}
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), creds, again, hex.EncodeToString(sum[:]), service, theRegion, when); err != nil || again.Header.Get("Authorization") != given {
		return "InvalidSignatureException", "The Canonical String should have been x-amz-security-token:" + creds.SessionToken
	}
	return "", ""
}

// fault is an error of the service.
type fault struct{ code, says string }

func faulty(code, format string, args ...any) (any, *fault) {
	return nil, &fault{code, fmt.Sprintf(format, args...)}
}

// read decodes a call strictly, and checks its CA.
func readCall(body []byte, into any, arn *string) *fault {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	switch err := decoder.Decode(into); {
	case err != nil:
		return &fault{"SerializationException", err.Error()}
	case !authorityPattern.MatchString(*arn):
		return &fault{"InvalidArnException", "Invalid CA ARN"}
	case *arn != theARN:
		return &fault{"ResourceNotFoundException", "Could not find Certificate Authority " + *arn}
	}
	return nil
}

type validity struct {
	Type  string
	Value int64
}

type generalName struct{ DnsName, UniformResourceIdentifier, IpAddress string } //nolint:revive // AWS's names

type issueCall struct {
	CertificateAuthorityArn, SigningAlgorithm, TemplateArn, IdempotencyToken string
	Csr                                                                      []byte
	Validity, ValidityNotBefore                                              *validity
	APIPassthrough                                                           *struct {
		Subject    *struct{ CommonName, Organization string }
		Extensions *struct {
			SubjectAlternativeNames []generalName
			KeyUsage                *struct{ DigitalSignature, KeyEncipherment bool }
			ExtendedKeyUsage        []struct{ ExtendedKeyUsageType string }
		}
	} `json:"ApiPassthrough"`
}

var templates = []string{csrTemplate, apiTemplate, "BlankEndEntityCertificate_APIPassthrough/V1"}

func (s *service) issueCertificate(body []byte) (any, *fault) {
	var in issueCall
	if wrong := readCall(body, &in, &in.CertificateAuthorityArn); wrong != nil {
		return nil, wrong
	}
	template, ok := strings.CutPrefix(in.TemplateArn, "arn:aws:acm-pca:::template/")
	switch {
	case s.state != "ACTIVE":
		return faulty("InvalidStateException", "The certificate authority is in %s state", s.state)
	case !ok || !slices.Contains(templates, template):
		return faulty("InvalidArgsException", "Template %s does not exist", in.TemplateArn)
	case len(in.IdempotencyToken) == 0 || len(in.IdempotencyToken) > 36:
		return faulty("ValidationException", "idempotencyToken has %d characters", len(in.IdempotencyToken))
	case !s.by.signsBy(in.SigningAlgorithm):
		return faulty("InvalidArgsException", "The signing algorithm %s does not fit the CA's key", in.SigningAlgorithm)
	}
	if before, ok := s.tokens[in.IdempotencyToken]; ok && time.Since(before.at) < 5*time.Minute {
		return map[string]string{"CertificateArn": before.arn}, nil
	}
	leaf, wrong := s.leaf(in, template)
	if wrong != nil {
		return nil, wrong
	}
	arn := theARN + "/certificate/" + leaf.SerialNumber.Text(16)
	s.tokens[in.IdempotencyToken] = idempotent{arn, time.Now()}
	s.issued[arn] = &issued{pemOf(leaf), pemOf(s.by.own, s.by.root), s.delay, leaf}
	return map[string]string{"CertificateArn": arn}, nil
}

func (a *authority) signsBy(algorithm string) bool {
	switch a.key.(type) {
	case *rsa.PrivateKey:
		return strings.HasSuffix(algorithm, "WITHRSA")
	case *ecdsa.PrivateKey:
		return strings.HasSuffix(algorithm, "WITHECDSA")
	}
	return strings.ReplaceAll(algorithm, "_", "-") == a.own.SignatureAlgorithm.String()
}

func (s *service) leaf(in issueCall, template string) (*x509.Certificate, *fault) {
	csr, san, wrong := readCSR(in.Csr)
	if wrong != nil {
		return nil, wrong
	}
	cert := &x509.Certificate{
		SerialNumber: serial(), Subject: csr.Subject, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if wrong := s.times(cert, in); wrong != nil {
		return nil, wrong
	}
	called := false
	if strings.Contains(template, "_API") && in.APIPassthrough != nil {
		if called, wrong = takeNames(cert, in); wrong != nil {
			return nil, wrong
		}
	}
	if strings.HasPrefix(template, "Blank") && (in.APIPassthrough == nil || in.APIPassthrough.Extensions.KeyUsage == nil || len(in.APIPassthrough.Extensions.ExtendedKeyUsage) != 2) {
		cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageContentCommitment, nil
	}
	switch {
	case !called && san != nil:
		cert.ExtraExtensions = []pkix.Extension{*san}
	case !called && csr.Subject.String() == "":
		return nil, &fault{"MalformedCSRException", "CSR must have a subject or a subject alternative name"}
	}
	return make509(cert, s.by.own, csr.PublicKey, s.by.key), nil
}

func readCSR(text []byte) (*x509.CertificateRequest, *pkix.Extension, *fault) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, nil, &fault{"MalformedCSRException", "not PEM"}
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || csr.CheckSignature() != nil {
		return nil, nil, &fault{"MalformedCSRException", "invalid"}
	}
	switch csr.PublicKey.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
	default:
		return nil, nil, &fault{"MalformedCSRException", "unsupported key"}
	}
	var san *pkix.Extension
	for _, extension := range csr.Extensions {
		if extension.Id.Equal(oidSubjectAltName) {
			san = &extension
		}
	}
	if san != nil && !san.Critical && csr.Subject.String() == "" {
		return nil, nil, &fault{"MalformedCSRException", "CSR must mark the SAN extension critical when it has an empty subject."}
	}
	return csr, san, nil
}

func (s *service) times(cert *x509.Certificate, in issueCall) *fault {
	if v := in.Validity; v == nil || v.Type != "ABSOLUTE" || v.Value <= time.Now().Unix() {
		return &fault{"ValidationException", "validity"}
	}
	cert.NotAfter = time.Unix(in.Validity.Value, 0)
	switch {
	case cert.NotAfter.After(s.by.own.NotAfter):
		return &fault{"ValidationException", "The certificate validity specified exceeds the certificate authority validity"}
	case s.usage == "SHORT_LIVED_CERTIFICATE" && time.Until(cert.NotAfter) > 7*24*time.Hour:
		return &fault{"ValidationException", "more than 7 days"}
	}
	if v := in.ValidityNotBefore; v != nil {
		if v.Type != "ABSOLUTE" || v.Value < s.by.own.NotBefore.Unix() {
			return &fault{"ValidationException", "validityNotBefore"}
		}
		cert.NotBefore = time.Unix(v.Value, 0)
	}
	return nil
}

// takeNames has the names of the call win over those of the CSR.
func takeNames(cert *x509.Certificate, in issueCall) (called bool, wrong *fault) {
	if subject := in.APIPassthrough.Subject; subject != nil {
		if len(subject.CommonName) > 64 || len(subject.Organization) > 64 {
			return false, &fault{"ValidationException", "the subject is too long"}
		}
		cert.Subject = pkix.Name{CommonName: subject.CommonName}
		if subject.Organization != "" {
			cert.Subject.Organization = []string{subject.Organization}
		}
	}
	if in.APIPassthrough.Extensions == nil {
		return false, nil
	}
	names := in.APIPassthrough.Extensions.SubjectAlternativeNames
	if len(names) == 0 || len(names) > 150 {
		return false, &fault{"ValidationException", "subjectAlternativeNames"}
	}
	for _, name := range names {
		uri, err := url.Parse(name.UniformResourceIdentifier)
		ip := net.ParseIP(name.IpAddress)
		switch {
		case name.UniformResourceIdentifier != "" && err == nil && len(name.UniformResourceIdentifier) <= 253:
			cert.URIs = append(cert.URIs, uri)
		case name.DnsName != "" && len(name.DnsName) <= 253:
			cert.DNSNames = append(cert.DNSNames, name.DnsName)
		case ip != nil:
			cert.IPAddresses = append(cert.IPAddresses, ip)
		default:
			return false, &fault{"ValidationException", "Member must have length less than or equal to 253"}
		}
	}
	return true, nil
}

func (s *service) getCertificate(body []byte) (any, *fault) {
	var in struct{ CertificateAuthorityArn, CertificateArn string }
	if wrong := readCall(body, &in, &in.CertificateAuthorityArn); wrong != nil {
		return nil, wrong
	}
	found := s.issued[in.CertificateArn]
	switch {
	case found == nil:
		return faulty("ResourceNotFoundException", "Could not find Certificate %s", in.CertificateArn)
	case found.polls > 0:
		found.polls--
		return faulty("RequestInProgressException", "Issuance in progress")
	}
	return map[string]string{"Certificate": found.cert, "CertificateChain": found.chain}, nil
}

func (s *service) authorityCertificate(body []byte) (any, *fault) {
	var in struct{ CertificateAuthorityArn string }
	if wrong := readCall(body, &in, &in.CertificateAuthorityArn); wrong != nil {
		return nil, wrong
	}
	return map[string]string{"Certificate": pemOf(s.by.own), "CertificateChain": pemOf(s.by.root)}, nil
}

func (s *service) describe(body []byte) (any, *fault) {
	var in struct{ CertificateAuthorityArn string }
	if wrong := readCall(body, &in, &in.CertificateAuthorityArn); wrong != nil {
		return nil, wrong
	}
	return map[string]any{"CertificateAuthority": map[string]string{"Arn": theARN, "Status": s.state, "UsageMode": s.usage}}, nil
}
