package awspca

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// noEnvironment hides the machine's own configuration.
func noEnvironment(t *testing.T) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// fromFile are settings with an AWS configuration file.
func fromFile(t *testing.T, text string) Settings {
	t.Helper()
	return Settings{CAARN: theARN, ConfigFile: setting.File(fileOf(t, []byte(text)))}
}

func TestChainReadsProfileOfConfigFile(t *testing.T) {
	noEnvironment(t)
	s := newService(pki.ECDSAP256)
	settings := fromFile(t, fmt.Sprintf("[profile mesh]\naws_access_key_id = %s\naws_secret_access_key = %s\n", theKeys.AccessKeyID, theKeys.SecretAccessKey))
	settings.Profile = "mesh"
	mustSign(t, s.opened(t, settings))
	settings.Profile = "none"
	_, err := open(t.Context(), settings, s)
	mustBe(t, err, ca.ErrUnavailable, `no profile "none"`)
}

func TestChainTakesVariablesOfTheEntry(t *testing.T) {
	noEnvironment(t)
	t.Setenv("AWS_ACCESS_KEY_ID", theKeys.AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", theKeys.SecretAccessKey)
	mustSign(t, newService(pki.ECDSAP256).opened(t, Settings{CAARN: theARN}))
}

// Roles Anywhere is such a program: AWS's helper exchanges a certificate for credentials.
func TestChainRunsCredentialProcess(t *testing.T) {
	noEnvironment(t)
	s := newService(pki.ECDSAP256)
	s.keys[sessionKeys.AccessKeyID] = sessionKeys
	output := fileOf(t, jsonOf(t, map[string]any{
		"Version": 1, "AccessKeyId": sessionKeys.AccessKeyID, "SecretAccessKey": sessionKeys.SecretAccessKey, "SessionToken": sessionKeys.SessionToken,
		"Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}))
	mustSign(t, s.opened(t, fromFile(t, "[default]\ncredential_process = cat "+output+"\n")))
	broken := fileOf(t, []byte(`{"Version": 1, "SecretAccessKey": "`+sessionKeys.SecretAccessKey+`"`))
	for _, program := range []string{"cat " + broken, "/nowhere"} {
		mustFail(t, s.opened(t, fromFile(t, "[default]\ncredential_process = "+program+"\n")), ca.ErrUnavailable, "found no credentials")
	}
}

func TestBrokenConfigurationIsNotQuoted(t *testing.T) {
	noEnvironment(t)
	s := newService(pki.ECDSAP256)
	for _, text := range []string{"[default\naws_secret_access_key = " + theKeys.SecretAccessKey, "[default]\nsso_session = x\naws_secret_access_key = " + theKeys.SecretAccessKey} {
		c, err := open(t.Context(), fromFile(t, text), s)
		if err == nil {
			req, _ := ask(t)
			_, err = c.CSRSign(t.Context(), req)
		}
		mustBe(t, err, ca.ErrUnavailable)
	}
	mustFail(t, s.opened(t, Settings{CAARN: theARN}), ca.ErrUnavailable, "found no credentials")
}

func TestRoleOfAnotherAccountIsAssumedOnce(t *testing.T) {
	s := newService(pki.ECDSAP256)
	settings := theSettings()
	settings.AssumeRole = &AssumeRole{RoleARN: otherRole, ExternalID: theExternalID}
	c := s.opened(t, settings)
	mustSign(t, c)
	mustSign(t, c)
	if n, form := s.count("AssumeRole"), s.last(t, "AssumeRole").form; n != 1 || form.Get("RoleSessionName") != "countersign" {
		t.Errorf("%d calls, %v", n, form)
	}
	s.set(func() { delete(s.keys, theKeys.AccessKeyID) })
	mustSign(t, c) // with the role's
	settings.AssumeRole = &AssumeRole{RoleARN: otherRole}
	s.set(func() { s.keys[theKeys.AccessKeyID] = theKeys })
	mustFail(t, s.opened(t, settings), ca.ErrDenied, theARN+": credentials: AccessDenied: User is not authorized to perform: sts:AssumeRole")
	for _, test := range []struct {
		answer http.HandlerFunc
		want   *ca.Error
	}{
		{refuseXML(400, "Throttling", "Rate exceeded"), ca.ErrRateLimited}, {saying(503, ""), ca.ErrUnavailable}, {refuseXML(403, "InvalidClientTokenId", "invalid"), ca.ErrUnauthenticated},
		{refuseXML(403, "SignatureDoesNotMatch", "x-amz-security-token:"+roleKeys.SessionToken), ca.ErrUnauthenticated},
	} {
		s.next("AssumeRole", test.answer)
		mustFail(t, s.opened(t, settings), test.want, theARN)
	}
}

func TestRoleIsAssumedAgainBeforeItEnds(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		settings := theSettings()
		settings.AssumeRole = &AssumeRole{RoleARN: otherRole, ExternalID: theExternalID}
		c := s.opened(t, settings)
		mustSign(t, c)
		time.Sleep(56 * time.Minute)
		mustSign(t, c)
		if n := s.count("AssumeRole"); n != 2 {
			t.Errorf("assumed %d times", n)
		}
	})
}

func TestHangingTokenServiceEndsAtDeadline(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		settings := theSettings()
		settings.AssumeRole = &AssumeRole{RoleARN: otherRole, ExternalID: theExternalID}
		c := s.opened(t, settings)
		s.next("AssumeRole", hanging)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		req, _ := ask(t)
		_, err := c.CSRSign(ctx, req)
		mustBe(t, err, ca.ErrDeadline, theARN)
		s.next("AssumeRoleWithWebIdentity", hanging)
		began := time.Now()
		_, err = s.opened(t, byToken()).ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: theJWT})
		if mustBe(t, err, ca.ErrDeadline, "token exchange"); time.Since(began) > patience+time.Second {
			t.Errorf("ended after %s", time.Since(began))
		}
	})
}

func TestTokenIsExchangedForASession(t *testing.T) {
	s := newService(pki.ECDSAP256)
	c := s.opened(t, byToken())
	got, err := c.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: theJWT, SubjectTokenType: typeJWT})
	must(t, err)
	if left := time.Until(got.Expiry); left < 55*time.Minute || left > time.Hour || got.IssuedType != typeSession {
		t.Errorf("%v", got)
	}
	req, key := ask(t)
	req.Token = got.AccessToken
	mustSignThis(t, c, req, key)
	if mustHide(t, fmt.Sprintf("%+v", got)); s.count("AssumeRole") > 0 {
		t.Error("a role was assumed")
	}
	settings := byToken()
	settings.AssumeRole = &AssumeRole{RoleARN: otherRole, ExternalID: theExternalID}
	c = s.opened(t, settings)
	further, err := c.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: theJWT})
	must(t, err)
	if creds, err := sessionOf(further.AccessToken); err != nil || creds.AccessKeyID != roleKeys.AccessKeyID {
		t.Errorf("%v, %v", creds.AccessKeyID, err)
	}
	settings.AssumeRole.ExternalID = "other"
	_, err = s.opened(t, settings).ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: theJWT})
	mustBe(t, err, ca.ErrDenied, "token exchange: assume_role: AccessDenied")
}

func TestRefusedExchangeHasItsReason(t *testing.T) {
	s := newService(pki.ECDSAP256)
	c := s.opened(t, byToken())
	_, err := c.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: staleJWT})
	mustBe(t, err, ca.ErrUnauthenticated, "token exchange: ExpiredTokenException: Token expired: (secret)")
	for code, want := range map[string]*ca.Error{
		"InvalidIdentityToken": ca.ErrUnauthenticated, "IDPRejectedClaim": ca.ErrUnauthenticated, "AccessDenied": ca.ErrDenied,
		"IDPCommunicationError": ca.ErrUnavailable, "RegionDisabledException": ca.ErrDenied, "ValidationError": ca.ErrInvalid, "Throttling": ca.ErrRateLimited,
	} {
		s.next("AssumeRoleWithWebIdentity", refuseXML(http.StatusBadRequest, code, theJWT.Reveal()))
		_, err := c.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: theJWT})
		mustBe(t, err, want, "token exchange: "+code)
	}
	for _, body := range []string{"", "<x/>", "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"} {
		s.next("AssumeRoleWithWebIdentity", saying(200, body))
		_, err := c.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: theJWT})
		mustBe(t, err, ca.ErrInternal, "token exchange")
	}
	for says, req := range map[string]ca.TokenRequest{
		"AWS takes no audience": {SubjectToken: theJWT, Audience: "x"}, "AWS exchanges a JWT": {SubjectToken: theJWT, SubjectTokenType: "urn:x"},
		"requested_token_type is": {SubjectToken: theJWT, RequestedType: "urn:x"},
	} {
		_, err := c.ExchangeToken(t.Context(), req)
		mustBe(t, err, ca.ErrInvalid, says)
	}
	_, err = c.ExchangeToken(t.Context(), ca.TokenRequest{})
	mustBe(t, err, ca.ErrUnauthenticated, "no token")
	_, err = s.opened(t, theSettings()).ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: theJWT})
	mustBe(t, err, ca.ErrInvalid, "set exchange.role_arn")
}

func TestForeignSessionTokenIsUnauthenticated(t *testing.T) {
	for _, token := range []string{"x", sessionPrefix, sessionPrefix + "%", sessionPrefix + "e30", sessionPrefix + strings.Repeat("A", 100<<10)} {
		_, err := sessionOf(ca.Token(token))
		mustBe(t, err, ca.ErrUnauthenticated, "was not exchanged")
	}
}
