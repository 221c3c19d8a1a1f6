package estca

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// pendingPause is how long to wait for a pending request if the server does not say.
const pendingPause = time.Minute

// CA is a [ca.Client] and [ca.RootSource]. It has no goroutine of its own, keeps no
// connection between calls, and is safe for concurrent use.
type CA struct {
	settings Settings
	client   *rest.Client
	log      *slog.Logger
	issued   provider.Issued[asked, ca.Certificate]
}

// asked is the SHA-256 of a request's ID and CSR, which a repeat has, too.
type asked [sha256.Size]byte

// Open checks the settings without access to the network. An error has the reason
// [ca.Invalid].
func Open(settings Settings) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	client, err := rest.New(rest.Config{URL: settings.URL, TLS: settings.TLS, Failure: words, Own: own})
	if err != nil {
		return nil, err
	}
	settings.Log = cmp.Or(settings.Log, slog.New(slog.DiscardHandler))
	return &CA{settings: settings, client: client, log: settings.Log}, nil
}

// words returns the text of a server's error, which is for people (RFC 7030, section 4.2.3).
// A page in HTML and anything but text are left out.
func words(body []byte) string {
	text := strings.TrimSpace(string(body))
	if !utf8.ValidString(text) || strings.HasPrefix(text, "<") {
		return ""
	}
	return text
}

// own reports whether an error may be the server's: that of a proxy is a page. A 404 may be a
// proxy's whatever its text, as EST's errors have no form: "default backend - 404" is text, too.
func own(status int, body []byte) bool { return status != http.StatusNotFound && words(body) != "" }

// CSRSign implements [ca.Client] by simplereenroll where a certificate with the subject and
// the names of the CSR is held, and by simpleenroll otherwise or if the server refuses that. A
// request that waits for an approval is [ca.Pending] with the server's Retry-After:
// the same request asks for the result (RFC 7030, section 4.2.3). The server decides on the
// lifetime.
//
// EST has no repeats: a server enrolls the same CSR as often as it is asked. So a certificate is
// kept for a repeat whose first reply the host never saw. One whose reply the server lost on its
// way to this CA cannot be had again.
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "%w", err)
	}
	id := asked(sha256.Sum256(append([]byte(req.ID+"\x00"), req.CSR...)))
	if kept, ok := c.issued.Of(id); ok {
		return ca.Certificate{Chain: bytes.Clone(kept.Chain)}, nil
	}
	above, err := c.authorities(ctx)
	if err == nil {
		err = c.examine(above)
	}
	if err != nil {
		return ca.Certificate{}, err
	}
	reply, err := c.issue(ctx, csr, req.Token)
	if err != nil {
		return ca.Certificate{}, err
	}
	certificate, err := chain.Certificate(req.CSR, reply, above)
	if err != nil {
		return ca.Certificate{}, err
	}
	certificate.Roots = nil // Roots has them all, and those of bundle_file
	c.issued.Keep(id, ca.Certificate{Chain: bytes.Clone(certificate.Chain)})
	return certificate, nil
}

func (c *CA) issue(ctx context.Context, csr *x509.CertificateRequest, token ca.Token) ([]byte, error) {
	if c.holds(csr) {
		reply, err := c.ask(ctx, reenroll, csr, rest.Call{Pair: c.settings.held()})
		if !refused(err) {
			return reply, err
		}
		c.log.Warn("the server refuses simplereenroll, trying simpleenroll", "held_cert_file", c.settings.HeldCertFile, "error", err)
	}
	call, err := c.login(token)
	if err != nil {
		return nil, err
	}
	reply, err := c.ask(ctx, enroll, csr, call)
	if ca.ReasonFor(err) == ca.Invalid {
		err = c.explain(ctx, csr, err)
	}
	return reply, err
}

// login returns a call with the user's name and password, if there is a user.
func (c *CA) login(token ca.Token) (call rest.Call, err error) {
	if c.settings.Username == "" {
		return call, nil
	}
	password, err := c.settings.password(token)
	if err != nil {
		return call, err
	}
	pair := base64.StdEncoding.EncodeToString([]byte(c.settings.Username + ":" + password.Reveal()))
	call.Header = http.Header{"Authorization": {"Basic " + pair}}
	call.Hide = []ca.Token{password, ca.Token(pair)}
	return call, nil
}

// ask sends the CSR and returns the bag of certificates in the reply.
func (c *CA) ask(ctx context.Context, operation string, csr *x509.CertificateRequest, call rest.Call) ([]byte, error) {
	call.Path = c.settings.path(operation)
	call.Body = rest.Content{Type: "application/pkcs10", Body: []byte(base64.StdEncoding.EncodeToString(csr.Raw))}
	header := http.Header{"Accept": {"application/pkcs7-mime"}, "Content-Transfer-Encoding": {"base64"}}
	maps.Copy(header, call.Header)
	call.Header = header
	reply, err := c.client.Send(ctx, call)
	switch {
	case err != nil:
		return nil, err
	case reply.Status == http.StatusAccepted:
		return nil, &ca.Error{
			Reason: ca.Pending, RetryAfter: cmp.Or(rest.RetryAfter(reply.Header), pendingPause),
			Message: c.client.Host() + " has not decided on the request yet: approve it there",
		}
	case reply.Status != http.StatusOK:
		return nil, ca.Errorf(ca.Internal, "%s answered %s with %d, which is not a reply of EST", c.client.Host(), operation, reply.Status)
	}
	return reply.Body, nil
}

// refused reports whether the server does not renew by the held certificate.
func refused(err error) bool {
	return slices.Contains([]ca.Reason{ca.Denied, ca.Unauthenticated, ca.Invalid}, ca.ReasonFor(err)) && err != nil ||
		errors.Is(err, rest.ErrForeign)
}

// holds reports whether a certificate is held that simplereenroll can renew: its subject and
// its names must be those of the CSR (RFC 7030, section 4.2.2).
func (c *CA) holds(csr *x509.CertificateRequest) bool {
	pair := c.settings.held()
	if !pair.IsSet() {
		return false
	}
	leaf, err := held(pair)
	if err != nil {
		c.log.Debug("no certificate to renew with", "error", err)
		return false
	}
	has, err := pki.IdentityOf(leaf)
	if err != nil {
		return false
	}
	wanted, err := pki.IdentityOfCSR(csr)
	return err == nil && has.Equal(wanted) && bytes.Equal(leaf.RawSubject, csr.RawSubject)
}

func held(pair setting.KeyPair) (*x509.Certificate, error) {
	certificate, err := pair.Read()
	if err != nil {
		return nil, err
	}
	return certificate.Leaf, nil
}
