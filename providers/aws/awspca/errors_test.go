package awspca

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func jsonOf(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	return text
}

func TestEachDocumentedErrorHasItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(pki.ECDSAP256)
		c := s.opened(t, theSettings())
		mustSign(t, c)
		for code, want := range map[string]*ca.Error{
			"InvalidArgsException": ca.ErrInvalid, "InvalidArnException": ca.ErrInvalid, "MalformedCSRException": ca.ErrInvalid,
			"ResourceNotFoundException": ca.ErrInvalid, "ValidationException": ca.ErrInvalid, "RequestFailedException": ca.ErrInvalid,
			"InvalidStateException": ca.ErrUnavailable, "ServiceUnavailable": ca.ErrUnavailable,
			"LimitExceededException": ca.ErrRateLimited, "ThrottlingException": ca.ErrRateLimited, "Throttling": ca.ErrRateLimited,
			"TooManyRequestsException": ca.ErrRateLimited, "RequestLimitExceeded": ca.ErrRateLimited,
			"RequestAlreadyProcessedException": ca.ErrAborted, "ConcurrentModificationException": ca.ErrAborted,
			"AccessDeniedException": ca.ErrDenied, "NotAuthorized": ca.ErrDenied, "OptInRequired": ca.ErrDenied,
			"ExpiredTokenException": ca.ErrUnauthenticated, "UnrecognizedClientException": ca.ErrUnauthenticated,
			"InvalidSignatureException": ca.ErrUnauthenticated, "IncompleteSignatureException": ca.ErrUnauthenticated, "MissingAuthenticationTokenException": ca.ErrUnauthenticated,
			"InternalFailure": ca.ErrInternal, "NobodyKnowsException": ca.ErrInvalid,
		} {
			for _, name := range []string{"IssueCertificate", "GetCertificate"} {
				s.next(name, refuse(http.StatusBadRequest, code, "because"))
				mustFail(t, c, want, theARN+": "+code)
			}
		}
	})
}

func TestStatusWithoutErrorHasItsReason(t *testing.T) {
	s := newService(pki.ECDSAP256)
	c := s.opened(t, theSettings())
	mustSign(t, c)
	for status, want := range map[int]*ca.Error{
		302: ca.ErrInvalid, 400: ca.ErrUnavailable, 401: ca.ErrUnauthenticated, 403: ca.ErrDenied, 404: ca.ErrUnavailable, 408: ca.ErrUnavailable,
		429: ca.ErrRateLimited, 500: ca.ErrInternal, 502: ca.ErrUnavailable, 503: ca.ErrUnavailable, 504: ca.ErrUnavailable,
	} {
		s.next("IssueCertificate", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			saying(status, "<html>"+r.Header.Get("Authorization"))(w, r)
		})
		req, _ := ask(t)
		_, err := c.CSRSign(t.Context(), req)
		mustBe(t, err, want, theARN)
		if after := ca.RetryAfter(err); after != 7*time.Second {
			t.Errorf("%d: to come back after %s", status, after)
		}
	}
	s.next("IssueCertificate", saying(200, "<html>"))
	mustFail(t, c, ca.ErrInternal, "the reply is malformed")
}

// A server may quote the request, whose headers have the session token.
func TestQuotedSecretsAreRemoved(t *testing.T) {
	s := newService(pki.ECDSAP256)
	settings := theSettings()
	settings.AccessKeyID, settings.SecretAccessKey, settings.SessionToken = sessionKeys.AccessKeyID, sessionKeys.SecretAccessKey, sessionKeys.SessionToken
	s.keys[sessionKeys.AccessKeyID] = sessionKeys
	c := s.opened(t, settings)
	mustSign(t, c)
	for _, says := range []string{
		"you sent " + sessionKeys.SessionToken, strings.Repeat("x", 230) + sessionKeys.SecretAccessKey, "\x1b[31m\n" + sessionKeys.SessionToken,
	} {
		for _, code := range []string{"AccessDeniedException", says, "InvalidSignatureException"} {
			s.next("IssueCertificate", refuse(http.StatusBadRequest, code, says))
			req, _ := ask(t)
			_, err := c.CSRSign(t.Context(), req)
			if err == nil || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 800 {
				t.Errorf("%q", err)
			}
			mustHide(t, err.Error())
		}
	}
	// A wrong secret makes AWS quote the canonical request.
	settings.SecretAccessKey = "another-secret-of-the-same-key-0000000000"
	mustFail(t, s.opened(t, settings), ca.ErrUnauthenticated, "the signature was not accepted: check the secret")
}

func TestServerIsBounded(t *testing.T) {
	s := newService(pki.ECDSAP256)
	s.listen(t)
	c, err := Open(t.Context(), s.socket(t, theSettings()))
	must(t, err)
	mustSign(t, c)
	s.next("IssueCertificate", saying(200, strings.Repeat(" ", maxReply+1)), func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	mustFail(t, c, ca.ErrInternal, "the reply has more than 1048576 bytes")
	mustFail(t, c, ca.ErrInvalid, "307")
	s.Close()
	mustFail(t, c, ca.ErrUnavailable, theARN, "connection refused")
}

func TestServerThatIsNotVerifiedGetsNothing(t *testing.T) {
	s := newService(pki.ECDSAP256)
	s.listen(t)
	settings := s.socket(t, theSettings())
	settings.RootFile = ""
	c, err := Open(t.Context(), settings)
	must(t, err)
	mustFail(t, c, ca.ErrUnavailable, "certificate signed by unknown authority")
	if len(s.calls) > 0 {
		t.Error("it was called")
	}
}

func TestHangingServerEndsAtDeadline(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		mustSign(t, c)
		for _, name := range []string{"IssueCertificate", "GetCertificate"} {
			s.next(name, hanging)
			began := time.Now()
			mustFail(t, c, ca.ErrDeadline, theARN)
			if took := time.Since(began); took > patience+time.Second {
				t.Errorf("%s: ended after %s", name, took)
			}
			mustSign(t, c)
		}
	})
}
