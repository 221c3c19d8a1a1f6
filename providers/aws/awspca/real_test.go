//go:build e2e

package awspca

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acmpca"
	"github.com/aws/aws-sdk-go-v2/service/acmpca/types"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// startMoto starts moto with a certificate of an authority, and returns settings for it
// without a CA.
func startMoto(t *testing.T) Settings {
	t.Helper()
	python := os.Getenv("COUNTERSIGN_MOTO")
	if python == "" {
		t.Fatal("COUNTERSIGN_MOTO is not set: make check NAME=aws sets it")
	}
	server := catest.NewCA(catest.Options{})
	cert, key := testkit.Pair(t, server, testkit.Identity(t, "", []string{"localhost"}, nil))
	_, port, _ := net.SplitHostPort(testkit.FreeAddress(t))
	log := &testkit.Log{}
	//nolint:gosec // what the script installed
	moto := exec.Command(python, "-m", "moto.server", "-H", "127.0.0.1", "-p", port, "-s", "-c", fileOf(t, cert), "-k", fileOf(t, key))
	moto.Stdout, moto.Stderr, moto.Dir = log, log, t.TempDir()
	must(t, moto.Start())
	t.Cleanup(func() { _ = moto.Process.Kill(); _ = moto.Wait() })
	url, err := setting.ParseURL("https://localhost:" + port)
	must(t, err)
	settings := theSettings()
	settings.Endpoint, settings.RootFile = url, setting.File(fileOf(t, server.Bundle().PEM()))
	awaitMoto(t, settings, log)
	return settings
}

// awaitMoto waits until it answers.
func awaitMoto(t *testing.T, settings Settings, log *testkit.Log) {
	t.Helper()
	c, err := Open(t.Context(), settings)
	must(t, err)
	for ctx := testkit.Within(t, 2*time.Minute); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, settings.Endpoint.At("/moto-api/data.json"), nil)
		must(t, err)
		if reply, err := c.http.Do(req); err == nil {
			reply.Body.Close()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("moto does not answer:\n%s", log.Take())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// makeCA makes a root CA in moto, as an operator does, and returns its ARN. moto's keys are RSA.
func makeCA(t *testing.T, settings Settings) string {
	t.Helper()
	c, err := Open(t.Context(), settings)
	must(t, err)
	ctx := testkit.Within(t, 2*time.Minute)
	made, err := c.api.CreateCertificateAuthority(ctx, &acmpca.CreateCertificateAuthorityInput{
		CertificateAuthorityType: types.CertificateAuthorityTypeRoot,
		CertificateAuthorityConfiguration: &types.CertificateAuthorityConfiguration{
			KeyAlgorithm: types.KeyAlgorithmRsa2048, SigningAlgorithm: types.SigningAlgorithmSha256withrsa,
			Subject: &types.ASN1Subject{CommonName: aws.String("root")},
		},
	})
	must(t, err)
	arn := made.CertificateAuthorityArn
	csr, err := c.api.GetCertificateAuthorityCsr(ctx, &acmpca.GetCertificateAuthorityCsrInput{CertificateAuthorityArn: arn})
	must(t, err)
	order, err := c.api.IssueCertificate(ctx, &acmpca.IssueCertificateInput{
		CertificateAuthorityArn: arn, Csr: []byte(*csr.Csr), SigningAlgorithm: types.SigningAlgorithmSha256withrsa,
		TemplateArn: aws.String("arn:aws:acm-pca:::template/RootCACertificate/V1"), Validity: &types.Validity{Type: types.ValidityPeriodTypeYears, Value: aws.Int64(10)},
	})
	must(t, err)
	root, err := c.api.GetCertificate(ctx, &acmpca.GetCertificateInput{CertificateAuthorityArn: arn, CertificateArn: order.CertificateArn})
	must(t, err)
	_, err = c.api.ImportCertificateAuthorityCertificate(ctx, &acmpca.ImportCertificateAuthorityCertificateInput{CertificateAuthorityArn: arn, Certificate: []byte(*root.Certificate)})
	must(t, err)
	return *arn
}

// moto certifies the CSR for 365 days, whatever the call requests.
func TestRealMotoSignsByTheWireOfAWS(t *testing.T) {
	settings := startMoto(t)
	settings.CAARN = makeCA(t, settings)
	c, err := Open(t.Context(), settings)
	must(t, err)
	// moto calls every CA one for short-lived certificates.
	if found := settings.ValidateOnline(t.Context()); len(found) != 1 || !found[0].Warning || !strings.Contains(found[0].Summary, "more than 7 days") {
		t.Errorf("the online check found %v", found)
	}
	roots, err := c.Roots(t.Context())
	must(t, err)
	req, key := ask(t)
	reply, err := c.CSRSign(testkit.Within(t, time.Minute), req)
	must(t, err)
	check := testkit.Check(t, req, key)
	check.AcceptLonger = true
	if check.Roots, err = pki.ParseBundle(roots); err != nil {
		t.Fatal(err)
	}
	if _, err := check.Chain(reply.Chain); err != nil {
		t.Error(err)
	}
	settings.CAARN = theARN
	c, err = Open(t.Context(), settings)
	must(t, err)
	_, err = c.CSRSign(testkit.Within(t, time.Minute), req)
	mustBe(t, err, ca.ErrInvalid, theARN+": ResourceNotFoundException")
}

func TestRealMotoLendsCredentials(t *testing.T) {
	settings := startMoto(t)
	settings.AssumeRole, settings.STSEndpoint = &AssumeRole{RoleARN: otherRole, ExternalID: theExternalID}, settings.Endpoint
	settings.CAARN = makeCA(t, settings)
	c, err := Open(t.Context(), settings)
	must(t, err)
	_, err = c.Roots(testkit.Within(t, time.Minute))
	must(t, err)
	if creds, err := c.creds.Retrieve(context.Background()); err != nil || creds.SessionToken == "" {
		t.Errorf("the role's credentials: %v", err)
	}
}
