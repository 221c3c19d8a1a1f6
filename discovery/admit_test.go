package discovery_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/authn"
)

const opaque = "the caller could not be authenticated"

func TestOnlyVerifiedCertificatesAreServed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		p.trust("other.example", certtest.Root(t))
		foreign := certtest.Root(t)
		for name, certificate := range map[string]*certtest.Pair{
			"no certificate":               nil,
			"an expired one":               p.root.Leaf(t, -time.Minute, web),
			"one with two URIs":            p.root.Leaf(t, time.Hour, web, "spiffe://example.org/ns/shop/sa/other"),
			"one without a URI":            p.root.Leaf(t, time.Hour),
			"an unknown trust domain":      p.root.Leaf(t, time.Hour, "spiffe://nowhere.example/ns/shop/sa/web"),
			"another trust domain's roots": p.root.Leaf(t, time.Hour, "spiffe://other.example/ns/shop/sa/web"),
			"a stranger's":                 foreign.Leaf(t, time.Hour, web),
			"its own":                      certtest.SelfSigned(t, certtest.Leaf(t, time.Hour, web)),
		} {
			conn := p.dial(certificate)
			c := open(t, conn)
			c.ask(secretURL, "a")
			if said := c.ends(codes.Unauthenticated); said != opaque {
				t.Errorf("%s: the client gets %q", name, said)
			}
			_, err := secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{ResourceNames: []string{"a"}})
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s: a fetch ended with %v", name, err)
			}
			conn.Close()
		}
		if asked := p.source.callers(); len(asked) > 0 {
			t.Errorf("the source was asked for %+v", asked)
		}
		for _, reason := range []string{"must have exactly one, a SPIFFE ID", "unknown trust domain", "expired", "no credential of this kind"} {
			if !strings.Contains(p.log.String(), reason) {
				t.Errorf("the log does not say %q", reason)
			}
		}
	})
}

// tokens maps "good-…" to service accounts, and is away for "later".
type tokens struct{ kind authn.Kind }

func (k tokens) Authenticate(_ context.Context, c authn.Credential) (authn.Identity, error) {
	account, good := strings.CutPrefix(c.Token.Reveal(), "good-")
	switch {
	case c.Token == "":
		return authn.Identity{}, authn.ErrNotMine
	case c.Token == "later":
		return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "nobody answers")
	case !good:
		return authn.Identity{}, authn.Errorf(authn.ErrRefused, "the token %s is not good", c.Token.Reveal())
	}
	id, err := authn.OfSPIFFEID("spiffe://example.org/ns/shop/sa/" + account)
	id.Kind, id.Issuer = k.kind, "https://issuer.example"
	if k.kind == authn.ByTokenReview {
		id.Cluster = "reviewed"
	}
	return id, err
}

func withTokens(kind authn.Kind) func(*place, *discovery.Config) {
	return func(_ *place, c *discovery.Config) {
		c.Authenticator = append(c.Authenticator.(authn.Ordered), authn.Named{Name: "token", Authenticator: tokens{kind}})
	}
}

func TestTokenReplacesMissingOrBadCertificate(t *testing.T) {
	inBubble(t, withTokens(authn.ByJWT), func(t *testing.T, p *place) {
		for name, certificate := range map[string]*certtest.Pair{
			"none": nil, "an expired one": p.root.Leaf(t, -time.Minute, web), "a stranger's": certtest.Root(t).Leaf(t, time.Hour, web),
		} {
			conn := p.dial(certificate)
			c := open(t, conn, "authorization", "bEARER good-api")
			c.ask(secretURL, "a")
			c.gets("1")
			if got := p.server.Status().Streams[0].Identity; got != "spiffe://example.org/ns/shop/sa/api" {
				t.Errorf("%s: it is known as %s", name, got)
			}
			c.hang()
			conn.Close()
			synctest.Wait()
		}
		if n := p.server.Metrics().Authentications[authn.ByJWT]; n != 3 {
			t.Errorf("%d tokens were counted", n)
		}
	})
}

func TestCertificateWinsOverToken(t *testing.T) {
	inBubble(t, withTokens(authn.ByJWT), func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, time.Hour, web))
		defer conn.Close()
		c := open(t, conn, "authorization", "Bearer good-api")
		c.ask(secretURL, "a")
		c.gets("1")
		if got := p.server.Status().Streams[0]; got.Identity != web || got.Kind != "certificate" {
			t.Errorf("it is known as %s by %s", got.Identity, got.Kind)
		}
		c.hang()
	})
}

func TestBadTokenIsRefusedAndNeverShown(t *testing.T) {
	inBubble(t, withTokens(authn.ByJWT), func(t *testing.T, p *place) {
		conn := p.dial(nil)
		defer conn.Close()
		secret := "eyJhbGciOiJub25lIn0.c2VjcmV0c2VjcmV0c2VjcmV0.x"
		for name, c := range map[string]struct {
			pairs []string
			want  codes.Code
		}{
			"not good":         {[]string{"authorization", "Bearer " + secret}, codes.Unauthenticated},
			"twice":            {[]string{"authorization", "Bearer good-a", "authorization", "Bearer good-a"}, codes.Unauthenticated},
			"another scheme":   {[]string{"authorization", "Basic " + secret}, codes.Unauthenticated},
			"empty":            {[]string{"authorization", "Bearer "}, codes.Unauthenticated},
			"with a space":     {[]string{"authorization", "Bearer good-a b"}, codes.Unauthenticated},
			"clusters":         {[]string{"authorization", "Bearer good-a", "clusterid", "a", "clusterid", "b"}, codes.Unauthenticated},
			"is unknown":       {[]string{"authorization", "Bearer later"}, codes.Unavailable},
			"a header of none": {[]string{"x-token", "good-a"}, codes.Unauthenticated},
		} {
			stream := open(t, conn, c.pairs...)
			stream.ask(secretURL, "a")
			if said := stream.ends(c.want); strings.Contains(said, "good") || strings.Contains(said, "nobody") {
				t.Errorf("%s: the client gets %q", name, said)
			}
		}
		if strings.Contains(p.log.String(), secret) {
			t.Error("the log has a token")
		}
	})
}

func TestPlaintextTokenIsTakenOnlyWhereAllowed(t *testing.T) {
	for allowed, want := range map[bool]codes.Code{false: codes.Unauthenticated, true: codes.OK} {
		inBubble(t, func(p *place, c *discovery.Config) {
			withTokens(authn.ByJWT)(p, c)
			c.AllowTokenOverPlaintext = allowed
		}, func(t *testing.T, p *place) {
			conn := p.dialPlaintext()
			defer conn.Close()
			nobody := open(t, conn)
			nobody.ask(secretURL, "a")
			nobody.ends(codes.Unauthenticated)
			c := open(t, conn, "authorization", "Bearer good-api")
			c.ask(secretURL, "a")
			if want == codes.OK {
				c.gets("1")
				c.hang()
				return
			}
			if said := c.ends(want); said != "tokens are accepted only over TLS" {
				t.Errorf("the client gets %q", said)
			}
			if n := p.server.Metrics().Refusals["plaintext"]; n != 1 {
				t.Errorf("%d were counted", n)
			}
		})
	}
}

func TestUnreadyServerRefusesNewStreamsOnly(t *testing.T) {
	var notReady atomic.Pointer[error]
	inBubble(t, func(_ *place, c *discovery.Config) {
		c.Ready = func() error {
			if err := notReady.Load(); err != nil {
				return *err
			}
			return nil
		}
	}, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		before := open(t, conn)
		before.ask(thingURL, "a")
		before.gets("1")
		synctest.Wait()
		notReady.Store(new(errors.New("the cluster local is not synced")))
		early := open(t, conn)
		if said := early.ends(codes.Unavailable); strings.Contains(said, "local") || !strings.Contains(said, "not ready") {
			t.Errorf("the client gets %q", said)
		}
		p.source.put("a", "2")
		before.gets("2")
		before.hang()
		if got := p.server.Status().NotReady; got != "the cluster local is not synced" {
			t.Errorf("the status shows %q", got)
		}
	})
}

// nameless identifies every caller without a name.
type nameless struct{}

func (nameless) Authenticate(context.Context, authn.Credential) (authn.Identity, error) {
	return authn.Identity{Kind: authn.ByJWT}, nil
}

func TestFaultyAuthenticatorIsRefusedWithoutTokenLeak(t *testing.T) {
	const token = "eyJhbGciOiJub25lIn0.c2VjcmV0c2VjcmV0c2VjcmV0.x"
	for name, authenticator := range map[string]authn.Authenticator{"without a name": nameless{}, "that quotes the token": tokens{authn.ByJWT}} {
		inBubble(t, func(_ *place, c *discovery.Config) { c.Authenticator = authenticator }, func(t *testing.T, p *place) {
			conn := p.dial(nil)
			defer conn.Close()
			c := open(t, conn, "authorization", "Bearer "+token)
			c.ask(secretURL, "a")
			if said := c.ends(codes.Unauthenticated); said != opaque {
				t.Errorf("%s: the client gets %q", name, said)
			}
			if strings.Contains(p.log.String(), token) {
				t.Errorf("%s: the log has the token", name)
			}
		})
	}
}
