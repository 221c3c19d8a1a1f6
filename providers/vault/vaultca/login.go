package vaultca

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	lookupPath = "/v1/auth/token/lookup-self"
	renewPath  = "/v1/auth/token/renew-self"
	revokePath = "/v1/auth/token/revoke-self"
	// closeTime bounds how long the server is told that sessions have ended.
	closeTime = 2 * time.Second
)

// session returns the token to ask with: one that is held, renewed, or new.
func (c *CA) session(ctx context.Context, token ca.Token) (session, error) {
	credential, err := c.settings.Login.credential(token)
	if err != nil {
		return session{}, err
	}
	key := keyOf(credential)
	if held, ok := c.sessions.get(key, c.now()); ok && !held.due(c.now()) {
		return held, nil
	}
	return c.sessions.once(ctx, key, func() (session, error) { return c.refresh(ctx, key, credential) })
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
	case !printable(token.Reveal()):
		return "", ca.Errorf(ca.Unauthenticated, "the request's token has blanks or control characters within: it is none")
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
	if !printable(secret) {
		return "", ca.Errorf(ca.Unavailable, "%s: %s has blanks or control characters within: it has to hold the secret alone", setting, file)
	}
	return ca.Token(secret), nil
}

// printable tells that text can stand in a header.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// refresh renews what is held, or gets a new session where nothing is, or where
// renewing prolongs it no more. While the one held lasts, no failure is one.
func (c *CA) refresh(ctx context.Context, key sessionKey, credential ca.Token) (session, error) {
	held, ok := c.sessions.get(key, c.now())
	if ok && !held.due(c.now()) {
		return held, nil // another one got it meanwhile
	}
	if ok && held.renewable {
		renewed, err := c.renew(ctx, held)
		switch {
		case err == nil && renewed.longerThan(held):
			return c.sessions.keep(renewed, c.now()), nil
		case err != nil && ca.ActionFor(err) == ca.Wait:
			return c.postpone(held, err), nil // a login would fail, too, and may be one of a counted few
		}
	}
	fresh, err := c.login(ctx, key, credential)
	if err != nil && ok {
		return c.postpone(held, err), nil
	}
	if err != nil {
		return session{}, err
	}
	c.log.Debug("there is a session with the server", "method", c.settings.Login.method(), "ends", fresh.ends, "renewable", fresh.renewable)
	return c.sessions.keep(fresh, c.now()), nil
}

// postpone has a session that could not be renewed be used for the rest of its life.
func (c *CA) postpone(held session, err error) session {
	c.log.Warn("the session with the server could not be renewed; it is used while it lasts", "error", err, "ends", held.ends)
	held.renewAt = c.now().Add(renewPause)
	return c.sessions.keep(held, c.now())
}

func (c *CA) renew(ctx context.Context, held session) (session, error) {
	renewed, err := c.ask(ctx, held.key, rest.Call{Path: renewPath, Method: http.MethodPost}, held.token)
	renewed.ours = held.ours
	return renewed, err
}

func (c *CA) login(ctx context.Context, key sessionKey, credential ca.Token) (session, error) {
	l := c.settings.Login
	if l.method() == Token {
		return c.lookup(ctx, key, credential)
	}
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
	fresh.ours = true
	return fresh, err
}

// lookup makes a session of a token at hand. Where that may not be looked up, nothing
// is known of its life, and signing tells whether it is any good.
func (c *CA) lookup(ctx context.Context, key sessionKey, token ca.Token) (session, error) {
	var reply struct {
		Data struct {
			Seconds   int64 `json:"ttl"` // 0: it does not end
			Renewable bool  `json:"renewable"`
		} `json:"data"`
	}
	begun := c.now()
	err := c.call(ctx, rest.Call{Path: lookupPath}, token, &reply)
	if err != nil && ca.ReasonFor(err) != ca.Denied {
		return session{}, err
	}
	return newSession(key, lease{Token: token.Reveal(), Seconds: reply.Data.Seconds, Renewable: reply.Data.Renewable}, begun), nil
}

// ask makes a call whose answer is a token.
func (c *CA) ask(ctx context.Context, key sessionKey, call rest.Call, token ca.Token) (session, error) {
	var reply struct {
		Auth lease `json:"auth"`
	}
	begun := c.now()
	if err := c.call(ctx, call, token, &reply); err != nil {
		return session{}, err
	}
	if reply.Auth.Token == "" || !printable(reply.Auth.Token) {
		return session{}, ca.Errorf(ca.Internal, "%s answered %s without a token", c.client.Host(), call.Path)
	}
	return newSession(key, reply.Auth, begun), nil
}

// Close implements [io.Closer]: the server is told that the sessions that we logged
// in for have ended, as far as it listens within two seconds. The others end with
// their leases.
func (c *CA) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	for _, held := range c.sessions.takeAll() {
		if !held.ours || ctx.Err() != nil {
			continue
		}
		if err := c.call(ctx, rest.Call{Path: revokePath, Method: http.MethodPost}, held.token, nil); err != nil {
			c.log.Debug("a session could not be revoked; it ends with its lease", "error", err, "ends", held.ends)
		}
	}
	return nil
}
