package awspca

import (
	"crypto"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

const (
	webID         = "spiffe://example.org/ns/shop/sa/web"
	theRegion     = "eu-central-1"
	theARN        = "arn:aws:acm-pca:eu-central-1:123456789012:certificate-authority/0b2cbf04-5a3c-4fd3-9d73-2a3f5c1b8d10"
	theRole       = "arn:aws:iam::123456789012:role/mesh"
	otherRole     = "arn:aws:iam::210987654321:role/signer"
	theExternalID = "shop-7"
	theJWT        = ca.Token("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ3ZWIifQ.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg")
	staleJWT      = ca.Token("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJvbGQifQ.c2lnbmF0dXJlLW9mLXRoZS1vbGQtb25l")
)

var (
	theKeys     = aws.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	sessionKeys = aws.Credentials{AccessKeyID: "ASIAIOSFODNN7SESSION", SecretAccessKey: "c2Vzc2lvbi1zZWNyZXQtb2YtYS10ZXN0LWtleQ", SessionToken: "IQoJb3JpZ2luX2VjEXAMPLEsessionTokenOfATest"}
	roleKeys    = aws.Credentials{AccessKeyID: "ASIAIOSFODNN7ROLE000", SecretAccessKey: "cm9sZS1zZWNyZXQtb2YtYS10ZXN0LWtleS0wMA", SessionToken: "IQoJb3JpZ2luX2VjEXAMPLEroleTokenOfATest00"}
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

func fileOf(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, content, 0o600))
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// theSettings are those of a key.
func theSettings() Settings {
	return Settings{CAARN: theARN, AccessKeyID: theKeys.AccessKeyID, SecretAccessKey: theKeys.SecretAccessKey}
}

// byToken are settings with the token of each request.
func byToken() Settings { return Settings{CAARN: theARN, Exchange: &Exchange{RoleARN: theRole}} }

// opened returns a client that calls the service in memory.
func (s *service) opened(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := open(t.Context(), settings, s)
	must(t, err)
	return c
}

// socket returns settings for the service on its socket.
func (s *service) socket(t *testing.T, settings Settings) Settings {
	t.Helper()
	u, err := setting.ParseURL(s.URL)
	must(t, err)
	settings.Endpoint, settings.RootFile = u, setting.File(s.rootFile(t))
	if settings.Exchange != nil || settings.AssumeRole != nil {
		settings.STSEndpoint = u
	}
	return settings
}

// ask returns a request for web, and its key.
func ask(t *testing.T) (ca.SignRequest, crypto.Signer) {
	t.Helper()
	return testkit.Request(t, webID)
}

// mustSign has a request signed, and demands a reply that an agent takes.
func mustSign(t *testing.T, c *CA) *pki.Chain {
	t.Helper()
	req, key := ask(t)
	return mustSignThis(t, c, req, key)
}

func mustSignThis(t *testing.T, c *CA, req ca.SignRequest, key crypto.Signer) *pki.Chain {
	t.Helper()
	reply, err := c.CSRSign(t.Context(), req)
	must(t, err)
	return testkit.Passes(t, reply, testkit.Check(t, req, key))
}

// mustFail demands an error of that reason that contains all of these.
func mustFail(t *testing.T, c *CA, want *ca.Error, says ...string) {
	t.Helper()
	req, _ := ask(t)
	_, err := c.CSRSign(t.Context(), req)
	mustBe(t, err, want, says...)
}

// mustBe demands an error of that reason that contains all of these, and no secret.
func mustBe(t *testing.T, err error, want *ca.Error, says ...string) {
	t.Helper()
	testkit.Fails(t, err, theJWT, want, says...)
	mustHide(t, err.Error())
}

// mustHide demands that a text has no secret.
func mustHide(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{
		theKeys.SecretAccessKey, sessionKeys.SecretAccessKey, sessionKeys.SessionToken, roleKeys.SecretAccessKey, roleKeys.SessionToken,
		theJWT.Reveal(), staleJWT.Reveal(), sessionPrefix,
	} {
		if strings.Contains(text, secret[:min(20, len(secret))]) {
			t.Errorf("a secret is in %s", text)
		}
	}
}
