package vaultca

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	// maxSessions bounds the tokens held for credentials that come with requests.
	maxSessions = 4096
	// A token is renewed when a third of its life is left, and not used in its last
	// seconds.
	renewPart = 3
	lastly    = 5 * time.Second
)

// session is a token to ask with.
type session struct {
	token     ca.Token
	ours      bool // we logged in for it, and can again
	key       sessionKey
	renewable bool
	renewAt   time.Time // zero: it does not end
	ends      time.Time // zero: it does not end
}

// sessionKey is the digest of the credential that comes with a request, so that no
// workload uses another's session.
type sessionKey [sha256.Size]byte

// sessions are the tokens that we logged in for. A turn is had by one caller at a
// time: many requests at once cost one login.
type sessions struct {
	mu    sync.Mutex
	held  map[sessionKey]session
	turns map[sessionKey]chan struct{}
}

func newSessions() *sessions {
	return &sessions{held: map[sessionKey]session{}, turns: map[sessionKey]chan struct{}{}}
}

func (s *sessions) get(key sessionKey, now time.Time) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, ok := s.held[key]
	if ok && !held.ends.IsZero() && now.Add(lastly).After(held.ends) {
		delete(s.held, key)
		return session{}, false
	}
	return held, ok
}

func (s *sessions) keep(one session, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) >= maxSessions {
		s.makeRoom(now)
	}
	s.held[one.key] = one
}

// makeRoom lets go of what has ended, or of what ends first.
func (s *sessions) makeRoom(now time.Time) {
	var first session
	for key, held := range s.held {
		if !held.ends.IsZero() && now.After(held.ends) {
			delete(s.held, key)
		} else if first.token == "" || held.ends.Before(first.ends) {
			first = held
		}
	}
	if len(s.held) >= maxSessions {
		delete(s.held, first.key)
	}
}

// drop forgets a session, unless another has taken its place.
func (s *sessions) drop(one session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[one.key].token == one.token {
		delete(s.held, one.key)
	}
}

// turn waits until nobody else logs in with that credential.
func (s *sessions) turn(ctx context.Context, key sessionKey) (done func(), err error) {
	for {
		s.mu.Lock()
		other, taken := s.turns[key]
		if !taken {
			mine := make(chan struct{})
			s.turns[key] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.turns, key)
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ca.Errorf(ca.ReasonFor(ctx.Err()), "another request's login took too long")
		}
	}
}

// session returns the token to ask with: the one at hand, or one that is held,
// renewed or logged in for.
func (c *CA) session(ctx context.Context, token ca.Token) (session, error) {
	credential, err := c.settings.Login.credential(token)
	if err != nil {
		return session{}, err
	}
	if c.settings.Login.method() == Token {
		return session{token: credential}, nil
	}
	key := sha256.Sum256([]byte(credential.Reveal()))
	if held, ok := c.sessions.get(key, time.Now()); ok && !held.due(time.Now()) {
		return held, nil
	}
	done, err := c.sessions.turn(ctx, key)
	if err != nil {
		return session{}, err
	}
	defer done()
	return c.refresh(ctx, key, credential)
}

func (held session) due(now time.Time) bool {
	return !held.renewAt.IsZero() && !now.Before(held.renewAt)
}

// credential is what a login proves itself with, besides the files of the method.
func (l Login) credential(token ca.Token) (ca.Token, error) {
	switch {
	case l.method() == AppRole || l.method() == Cert:
		return "", nil
	case l.TokenFile != "":
		return readSecret("login.token_file", l.TokenFile)
	case token == "":
		return "", ca.Errorf(ca.Unauthenticated, "there is no token: set login.token_file, or a token source for the provider")
	}
	return token, nil
}

func readSecret(setting, file string) (ca.Token, error) {
	text, err := rest.ReadFile(file)
	if err != nil {
		return "", ca.Errorf(ca.Unavailable, "%s: %w", setting, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", ca.Errorf(ca.Unavailable, "%s: %s is empty", setting, file)
	}
	return ca.Token(secret), nil
}

// refresh has the turn: what another one got meanwhile is used; what is due is
// renewed, and where that fails, or nothing is held, it logs in.
func (c *CA) refresh(ctx context.Context, key sessionKey, credential ca.Token) (session, error) {
	held, ok := c.sessions.get(key, time.Now())
	switch {
	case ok && !held.due(time.Now()):
		return held, nil
	case ok && held.renewable:
		if renewed, err := c.ask(ctx, key, rest.Call{Path: "/v1/auth/token/renew-self", Method: http.MethodPost}, held.token); err == nil && !renewed.due(time.Now()) {
			return renewed, nil
		}
	}
	fresh, err := c.login(ctx, key, credential)
	if err != nil && ok && ca.ActionFor(err) == ca.Wait {
		c.log.Warn("no new session could be had; the one held is used", "error", err, "until", held.ends)
		return held, nil
	}
	return fresh, err
}

func (c *CA) login(ctx context.Context, key sessionKey, credential ca.Token) (session, error) {
	l := c.settings.Login
	body := map[string]string{}
	hide := []ca.Token{credential}
	switch l.method() {
	case Kubernetes:
		body["role"], body["jwt"] = l.Role, credential.Reveal()
	case AppRole:
		secret, err := readSecret("login.secret_id_file", l.SecretIDFile)
		if err != nil {
			return session{}, err
		}
		body["role_id"], body["secret_id"] = l.RoleID, secret.Reveal()
		hide = append(hide, secret)
	case Cert:
		if l.Role != "" {
			body["name"] = l.Role
		}
	}
	fresh, err := c.ask(ctx, key, rest.Call{Path: l.path(), Body: body, Hide: hide}, "")
	if reason := ca.ReasonFor(err); reason == ca.Denied || reason == ca.Invalid {
		// 400 and 403: the credential was not accepted, whatever of it was wrong.
		return session{}, ca.Errorf(ca.Unauthenticated, "login by %s: %w", l.method(), err)
	}
	return fresh, err
}

// ask makes a call whose answer is a token, and keeps that.
func (c *CA) ask(ctx context.Context, key sessionKey, call rest.Call, token ca.Token) (session, error) {
	var reply struct {
		Auth struct {
			Token     string `json:"client_token"`
			Lease     int64  `json:"lease_duration"` // seconds; 0: it does not end
			Renewable bool   `json:"renewable"`
		} `json:"auth"`
	}
	begun := time.Now()
	if err := c.call(ctx, call, token, &reply); err != nil {
		return session{}, err
	}
	if reply.Auth.Token == "" {
		return session{}, ca.Errorf(ca.Internal, "%s answered a login without a token", c.client.Host())
	}
	fresh := session{token: ca.Token(reply.Auth.Token), ours: true, key: key, renewable: reply.Auth.Renewable}
	if life := time.Duration(reply.Auth.Lease) * time.Second; life > 0 {
		fresh.ends = begun.Add(life)
		fresh.renewAt = fresh.ends.Add(-life / renewPart)
	}
	c.sessions.keep(fresh, begun)
	return fresh, nil
}
