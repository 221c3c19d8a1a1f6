package awspca

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/pki"
	sdk "github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// tokenFor returns a token as the exchange makes it.
func tokenFor(t *testing.T, of session) ca.Token {
	t.Helper()
	creds := sessionKeys
	creds.AccessKeyID, creds.SecretAccessKey = of.ID, of.Key
	creds.Expires = farAway()
	got, err := tokenOf(creds)
	must(t, err)
	return got.AccessToken
}

// kit is for a CA that is asked with the token of each request, and has tokens exchanged.
func kit(t *testing.T) conformance.Kit {
	t.Helper()
	s := newService(pki.ECDSAP256)
	s.keys[sessionKeys.AccessKeyID] = sessionKeys
	s.listen(t)
	return conformance.Kit{
		Settings: map[string]any{
			"ca_arn": theARN, "endpoint": s.URL, "sts_endpoint": s.URL, "root_file": s.rootFile(t), "exchange": map[string]any{"role_arn": theRole},
		},
		WrongSettings: map[string]any{"ca_arn": "mesh"},
		Identity:      conformance.Names{SPIFFEID: webID, DNSNames: []string{"web.shop.svc", "www.shop.svc"}, IPAddresses: []string{"192.0.2.7"}},
		Token:         tokenFor(t, session{ID: sessionKeys.AccessKeyID, Key: sessionKeys.SecretAccessKey}),
		RefusedToken:  tokenFor(t, session{ID: "ASIAIOSFODNN7STRANGE", Key: "c3RyYW5nZXJzLXNlY3JldC1vZi1hLXRlc3QtMDA"}),
		TokenRequired: true,
		CallTimeout:   conformance.Duration(time.Minute), // on a busy machine
		Exchange:      ca.TokenRequest{SubjectToken: theJWT}, RefusedSubjectToken: staleJWT,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a whole suite")
	}
	conformance.Run(t, kit(t), sdk.Define("aws", "1", Open).Provider)
}

// kitFile is a kit as `countersign provider test` reads it.
type kitFile struct {
	conformance.Kit
	TokenFile               string            `json:"token_file"`
	RefusedTokenFile        string            `json:"refused_token_file"`
	Exchange                map[string]string `json:"exchange"`
	RefusedSubjectTokenFile string            `json:"refused_subject_token_file"`
}

func TestBinaryConformance(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a whole suite")
	}
	k := kit(t)
	file := func(token ca.Token) string { return fileOf(t, []byte(token.Reveal())) }
	text := jsonOf(t, kitFile{k, file(k.Token), file(k.RefusedToken), map[string]string{"subject_token_file": file(theJWT)}, file(staleJWT)})
	testkit.Run(t, "countersign", "provider", "test", "--quiet", testkit.Program(t, "countersign-provider-aws"), "--kit", fileOf(t, text))
}
