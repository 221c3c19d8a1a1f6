package istioca_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/authn"
)

// replacing is a story about a door whose settings a test replaces.
func replacing(t *testing.T, story func(t *testing.T, m *mesh, door istioca.Config)) {
	t.Helper()
	var door istioca.Config
	inBubble(t, func(m *mesh, p *parts) {
		battlefield(m, p)
		door = p.door
	}, func(t *testing.T, m *mesh) {
		door.Issuer = m.engine
		story(t, m, door)
	})
}

const sum = "spiffe://cluster.local/ns/batch/sa/sum"

func TestWhoIsTakenOutIsRefusedAtOnceOnTheSameConnection(t *testing.T) {
	key := newKey()
	for name, test := range map[string]struct {
		token string
		wish  wish
		take  func(door *istioca.Config)
		code  codes.Code
	}{
		"an issuer":           {"oidc", wish{identity: machine}, func(d *istioca.Config) { d.Tokens = d.Tokens[1:] }, codes.Unauthenticated},
		"an issuer's cluster": {"oidc", wish{identity: machine}, func(d *istioca.Config) { d.IssuerClusters = nil }, codes.Unauthenticated},
		"a cluster": {"web-token", wish{identity: web}, func(d *istioca.Config) {
			d.Tokens = []authn.Named{{Name: "none", Authenticator: authn.Clusters(func(string) authn.Authenticator { return nil })}}
		}, codes.Unauthenticated},
		"a node proxy":    {"ztunnel-token", impersonating(web), func(d *istioca.Config) { d.NodeProxies = nil }, codes.PermissionDenied},
		"a signer":        {"sum-token", wish{identity: sum, fields: map[string]any{"CertSigner": "fast"}}, func(d *istioca.Config) { d.CertSigners = nil }, codes.PermissionDenied},
		"a rule":          {"web-token", wish{identity: web}, func(d *istioca.Config) { _ = d.Issuer.(*ra.Engine).SetPolicy(must(ra.NewPolicy(home, nil))) }, codes.PermissionDenied},
		"freedom of CSRs": {"web-token", wish{identity: web, key: key, csr: csrOf(key, ztunnel)}, func(d *istioca.Config) { d.HoldNames = true }, codes.PermissionDenied},
	} {
		replacing(t, func(t *testing.T, m *mesh, door istioca.Config) {
			conn := m.dial("192.0.2.1")
			defer conn.Close()
			if test.token == "oidc" {
				test.token = m.issuer.token(t, machine, nil)
			}
			m.clusters[home].account("sum-token", "batch", "sum", "", "")
			c := m.as(conn, test.token, "")
			if _, err := c.ask(test.wish); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			test.take(&door)
			if err := m.server.Replace(door); err != nil {
				t.Fatal(err)
			}
			c.refused(test.wish, test.code)
		})
	}
}

// What is held by old settings neither goes on under them nor costs a certificate.
func TestHeldCallReturnsRetryWhenSettingsAreReplaced(t *testing.T) {
	replacing(t, func(t *testing.T, m *mesh, door istioca.Config) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.ca.Fail(away)
		c, began := m.as(conn, "web-token", home), time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if st := c.refused(wish{identity: web}, codes.Unavailable); st.Message() != "the settings have changed meanwhile; retry" {
				t.Error(st.Message())
			}
		}()
		time.Sleep(3 * time.Second)
		if err := m.server.Replace(door); err != nil {
			t.Fatal(err)
		}
		<-done
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it ended after %s", took)
		}
		m.ca.Fail(nil)
		time.Sleep(time.Minute)
		c.must(wish{identity: web})
	})
}

func TestWrongSettingsReplaceNothing(t *testing.T) {
	replacing(t, func(t *testing.T, m *mesh, door istioca.Config) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		good := door
		door.Tokens = nil
		if _, err := m.server.Prepare(door); err == nil {
			t.Error("a door without authenticators is taken over")
		}
		m.as(conn, "web-token", home).must(wish{identity: web})
		good.HoldNames = true
		take, err := m.server.Prepare(good)
		if err != nil {
			t.Fatal(err)
		}
		key := newKey()
		other := wish{identity: web, key: key, csr: csrOf(key, ztunnel)}
		m.as(conn, "web-token", home).must(other) // nothing is taken over yet
		take()
		m.as(conn, "web-token", home).refused(other, codes.PermissionDenied)
	})
}

// meanwhile is an authenticator that lets something happen before its answer counts.
type meanwhile struct {
	authn.Authenticator
	happens func()
}

// Authenticate implements [authn.Authenticator].
func (m meanwhile) Authenticate(ctx context.Context, c authn.Credential) (authn.Identity, error) {
	id, err := m.Authenticator.Authenticate(ctx, c)
	m.happens()
	return id, err
}

// A caller that old settings verified may be one that the new ones leave out.
func TestCallerVerifiedBeforeAReplacementGetsNothing(t *testing.T) {
	replacing(t, func(t *testing.T, m *mesh, door istioca.Config) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		next, once := door, door
		once.Tokens = slices.Clone(door.Tokens)
		once.Tokens[1].Authenticator = meanwhile{door.Tokens[1].Authenticator, func() {
			if err := m.server.Replace(next); err != nil {
				t.Error(err)
			}
		}}
		if err := m.server.Replace(once); err != nil {
			t.Fatal(err)
		}
		c := m.as(conn, "web-token", home)
		c.refused(wish{identity: web}, codes.Unavailable)
		c.must(wish{identity: web})
	})
}
