//go:build e2e

package e2e

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

const (
	awsCA    = "arn:aws:acm-pca:eu-central-1:123456789012:certificate-authority/0b2cbf04-5a3c-4fd3-9d73-2a3f5c1b8d10"
	awsKeyID = "AKIAIOSFODNN7EXAMPLE"
)

// privateCA is AWS Private CA as far as the provider needs it to sign; the provider's own tests
// have a stricter one. Its root is called "catest root".
type privateCA struct {
	*httptest.Server
	by *catest.CA

	mu     sync.Mutex
	away   bool
	issued map[string]*awsCertificate // by ARN, which has the idempotency token
}

type awsCertificate struct {
	chain []byte
	asked bool // the first to ask hears that it is in progress
}

func startPrivateCA(t *testing.T) *privateCA {
	t.Helper()
	p := &privateCA{by: catest.NewCA(catest.Options{}), issued: map[string]*awsCertificate{}}
	p.Server = httptest.NewTLSServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *privateCA) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// awsCall has the fields of all calls.
type awsCall struct {
	CertificateAuthorityArn, CertificateArn, SigningAlgorithm, TemplateArn, IdempotencyToken string
	Csr                                                                                      []byte
	Validity, ValidityNotBefore                                                              struct {
		Type  string
		Value int64
	}
}

func (p *privateCA) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		http.Error(w, "", http.StatusServiceUnavailable)
		return
	}
	var call awsCall
	in := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	in.DisallowUnknownFields()
	name, found := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "ACMPrivateCA.")
	if in.Decode(&call) != nil || !found || call.CertificateAuthorityArn != awsCA || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="+awsKeyID+"/") {
		awsRefuses(w, "ValidationException")
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	switch name {
	case "GetCertificateAuthorityCertificate":
		_ = json.NewEncoder(w).Encode(map[string]string{"Certificate": string(p.by.Bundle().PEM())})
	case "IssueCertificate":
		p.issue(w, r, call)
	case "GetCertificate":
		p.get(w, call)
	default:
		awsRefuses(w, "UnknownOperationException")
	}
}

func awsRefuses(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": why})
}

func (p *privateCA) issue(w http.ResponseWriter, r *http.Request, call awsCall) {
	arn := awsCA + "/certificate/" + call.IdempotencyToken
	if p.issued[arn] == nil {
		signed, err := p.by.CSRSign(r.Context(), ca.SignRequest{CSR: call.Csr, TTL: time.Until(time.Unix(call.Validity.Value, 0))})
		if err != nil || call.IdempotencyToken == "" || call.Validity.Type != "ABSOLUTE" || call.SigningAlgorithm != "SHA256WITHECDSA" || !strings.HasSuffix(call.TemplateArn, "template/EndEntityCertificate/V1") {
			awsRefuses(w, "InvalidArgsException")
			return
		}
		p.issued[arn] = &awsCertificate{chain: signed.Chain}
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"CertificateArn": arn})
}

func (p *privateCA) get(w http.ResponseWriter, call awsCall) {
	switch cert := p.issued[call.CertificateArn]; {
	case cert == nil:
		awsRefuses(w, "ResourceNotFoundException")
	case !cert.asked:
		cert.asked = true
		awsRefuses(w, "RequestInProgressException")
	default:
		_ = json.NewEncoder(w).Encode(map[string]string{"Certificate": string(cert.chain), "CertificateChain": string(p.by.Bundle().PEM())})
	}
}

// settings are the provider's.
func (p *privateCA) settings(t *testing.T) map[string]any {
	t.Helper()
	root := filepath.Join(proctest.Folder(t), "root.pem")
	writeWhole(t, root, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
	return map[string]any{"ca_arn": awsCA, "endpoint": p.URL, "root_file": root, "access_key_id": awsKeyID, "secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
}
