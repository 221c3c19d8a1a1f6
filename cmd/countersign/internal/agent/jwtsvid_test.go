package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// jwtClient is a provider's client, which a reload closes for good when it removes the provider.
type jwtClient struct {
	ca.Client
	closed  context.Context
	watched atomic.Int32
}

func (c *jwtClient) SignJWT(context.Context, ca.JWTRequest) (ca.Token, error) {
	if c.closed.Err() != nil {
		return "", ca.Errorf(ca.Unavailable, "closed")
	}
	return "signed", nil
}

func (c *jwtClient) WatchJWTKeys(ctx context.Context, _ func([]byte) error) error {
	c.watched.Add(1)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed.Done():
		return ca.Errorf(ca.Unavailable, "closed")
	}
}

// A provider that lacked the ability is asked again once it is another one, or its credential changes.
func TestReplacedJWTProviderIsAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(c ca.Client) []secret.Authority { return []secret.Authority{{Name: "ca", Client: c}} }
		cfg := &agent.Config{Authorities: at(&unableClient{})}
		j, err := openJWTSVIDs(config.JWTSVID{Provider: "ca", Audiences: []string{"*"}}, cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer j.close() //nolint:errcheck // never fails
		synctest.Wait()
		next := &unableClient{}
		j.follow(at(next))
		synctest.Wait()
		j.follow(at(next)) // a reload that leaves the provider alone
		synctest.Wait()
		if n := next.watched.Load(); n != 1 {
			t.Errorf("the next client was watched %d times", n)
		}
		j.retry("other")
		j.retry("ca")
		synctest.Wait()
		if n := next.watched.Load(); n != 2 {
			t.Errorf("with another credential it was watched %d times", n)
		}
	})
}

// A provider that was away ends the pauses of tokens when it is ready, as it does those of certificates.
func TestReadyProviderIsAskedForTokensAtOnce(t *testing.T) {
	asked := make(chan struct{}, 10)
	cfg := &agent.Config{Authorities: []secret.Authority{{Name: "ca", Client: askedClient(asked)}}, Socket: sds.Config{Path: filepath.Join(t.TempDir(), "s")}}
	j, err := openJWTSVIDs(config.JWTSVID{Provider: "ca", Audiences: []string{"*"}}, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close() //nolint:errcheck // never fails
	a, err := agent.New(*cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // nothing was served
	s := &start{agent: a, jwts: j, providers: &providers{}}
	s.providers.begin(s.agent, s.retry)
	for range 2 {
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("it is not asked")
		}
		s.providers.onState(pluginhost.Status{Name: "ca", State: pluginhost.Ready})
	}
}

// askedClient lacks the ability, and shows when it is asked.
type askedClient chan struct{}

func (askedClient) CSRSign(context.Context, ca.SignRequest) (ca.Certificate, error) {
	return ca.Certificate{}, ca.ErrUnavailable
}

func (askedClient) SignJWT(context.Context, ca.JWTRequest) (ca.Token, error) {
	return "", ca.ErrUnimplemented
}

func (c askedClient) WatchJWTKeys(context.Context, func([]byte) error) error {
	c <- struct{}{}
	return ca.ErrUnimplemented
}

// unableClient lacks the ability.
type unableClient struct{ jwtClient }

func (c *unableClient) WatchJWTKeys(context.Context, func([]byte) error) error {
	c.watched.Add(1)
	return ca.ErrUnimplemented
}

// A reload replaces the provider after its credential was read, and before the call.
func TestCredentialIsForItsProviderAlone(t *testing.T) {
	at := func(c ca.Client) []secret.Authority {
		return []secret.Authority{{Name: "ca", Client: c, Token: func(context.Context) (ca.Bearer, error) { return ca.Bearer{Token: "credential"}, nil }}}
	}
	cfg := &agent.Config{Authorities: at(&jwtClient{closed: t.Context()})}
	j, err := openJWTSVIDs(config.JWTSVID{Provider: "ca", Audiences: []string{"*"}}, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close() //nolint:errcheck // never fails
	sign := func(token ca.Token) error {
		_, err := j.SignJWT(t.Context(), ca.JWTRequest{Token: token})
		return err
	}
	read := func() ca.Token {
		bearer, err := j.token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return bearer.Token
	}
	token := read()
	if err := sign(token); err != nil {
		t.Error(err)
	}
	j.follow(cfg.Authorities) // the same client
	if err := sign(token); err != nil {
		t.Errorf("after a reload that changes nothing: %v", err)
	}
	j.follow(at(&jwtClient{closed: t.Context()}))
	if err := sign(token); ca.ReasonFor(err) != ca.Unavailable {
		t.Errorf("another provider got the credential: %v", err)
	}
	if err := sign(read()); err != nil {
		t.Error(err)
	}
}

func TestJWTProviderThatComesBackWorksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(c *jwtClient) []secret.Authority { return []secret.Authority{{Name: "ca", Client: c}} }
		life, end := context.WithCancel(t.Context())
		first, second := &jwtClient{closed: life}, &jwtClient{closed: t.Context()}
		cfg := &agent.Config{Authorities: at(first)}
		j, err := openJWTSVIDs(config.JWTSVID{Provider: "ca", Audiences: []string{"*"}}, cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer j.close() //nolint:errcheck // never fails
		synctest.Wait()
		j.follow(nil)
		end()
		synctest.Wait()
		if _, err := j.SignJWT(t.Context(), ca.JWTRequest{}); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("while it is removed: %v", err)
		}
		j.follow(at(second))
		synctest.Wait()
		if _, err := j.SignJWT(t.Context(), ca.JWTRequest{}); err != nil {
			t.Error(err)
		}
		if a, b := first.watched.Load(), second.watched.Load(); a != 1 || b != 1 {
			t.Errorf("the keys were watched %d and %d times", a, b)
		}
	})
}
