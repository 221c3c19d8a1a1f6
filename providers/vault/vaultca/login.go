package vaultca

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	lookupPath = "/v1/auth/token/lookup-self"
	renewPath  = "/v1/auth/token/renew-self"
	revokePath = "/v1/auth/token/revoke-self"
	// closeTime bounds the revocation of all sessions.
	closeTime = 2 * time.Second
)

// session returns the session to call with: the current one, renewed if due, or a new one.
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

// credential returns the token that identifies the session: of the file or the request, or
// "" where the method has files of its own.
func (l Login) credential(token ca.Token) (ca.Token, error) {
	switch {
	case l.method() == AppRole || l.method() == Cert:
		return "", nil
	case l.TokenFile != "":
		return readSecret("login.token_file", l.TokenFile)
	case token == "":
		return "", ca.Errorf(ca.Unauthenticated, "no token: set login.token_file, or the provider's token source")
	case !printable(token.Reveal()):
		return "", ca.Errorf(ca.Unauthenticated, "the request's token contains blanks or control characters")
	}
	return token, nil
}

func readSecret(name string, file setting.File) (ca.Token, error) {
	text, err := file.Read()
	if err != nil {
		return "", ca.Errorf(ca.Unavailable, "%s: %w", name, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", ca.Errorf(ca.Unavailable, "%s: %s is empty", name, file)
	}
	if !printable(secret) {
		return "", ca.Errorf(ca.Unavailable, "%s: %s contains blanks or control characters: it must hold nothing but the secret", name, file)
	}
	return ca.Token(secret), nil
}

// printable reports whether text can be the value of a header.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// refresh renews the current session. It logs in where there is none, or where renewal no
// longer extends it. While the current session lasts, a failure is logged only.
func (c *CA) refresh(ctx context.Context, key sessionKey, credential ca.Token) (session, error) {
	held, ok := c.sessions.get(key, c.now())
	if ok && !held.due(c.now()) {
		return held, nil // another call refreshed it meanwhile
	}
	if ok && held.renewable {
		renewed, err := c.renew(ctx, held)
		switch {
		case err == nil && renewed.longerThan(held):
			return c.sessions.keep(renewed, c.now()), nil
		case err != nil && ca.ActionFor(err) == ca.Wait:
			return c.postpone(held, err), nil // a login would fail, too, and logins may be limited
		}
	}
	fresh, err := c.login(ctx, key, credential)
	if err != nil && ok {
		return c.postpone(held, err), nil
	}
	if err != nil {
		return session{}, err
	}
	c.log.Debug("logged in", "method", c.settings.Login.method(), "expires", fresh.ends, "renewable", fresh.renewable)
	return c.sessions.keep(fresh, c.now()), nil
}

// postpone keeps a session that could not be renewed until it expires.
func (c *CA) postpone(held session, err error) session {
	c.log.Warn("session renewal failed, keeping the session until it expires", "error", err, "expires", held.ends)
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
		// 400 and 403: the credential was not accepted, for whatever reason.
		return session{}, ca.Errorf(ca.Unauthenticated, "login by %s: %w", l.method(), err)
	}
	fresh.ours = true
	return fresh, err
}

// lookup makes a session of a given token. Where the token may not look itself up, its
// lifetime stays unknown, and signing shows whether it is valid.
func (c *CA) lookup(ctx context.Context, key sessionKey, token ca.Token) (session, error) {
	var reply struct {
		Data struct {
			Seconds   int64 `json:"ttl"` // 0: never expires
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

// ask makes a call that returns a token.
func (c *CA) ask(ctx context.Context, key sessionKey, call rest.Call, token ca.Token) (session, error) {
	var reply struct {
		Auth lease `json:"auth"`
	}
	begun := c.now()
	if err := c.call(ctx, call, token, &reply); err != nil {
		return session{}, err
	}
	if reply.Auth.Token == "" || !printable(reply.Auth.Token) {
		return session{}, ca.Errorf(ca.Internal, "%s returned no valid token from %s", c.client.Host(), call.Path)
	}
	return newSession(key, reply.Auth, begun), nil
}

// Close implements [io.Closer]. It revokes the sessions that this provider logged in for,
// as far as the server answers within two seconds; the others end with their leases. Close
// may be called more than once.
func (c *CA) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	for _, held := range c.sessions.takeAll() {
		if !held.ours || ctx.Err() != nil {
			continue
		}
		if err := c.call(ctx, rest.Call{Path: revokePath, Method: http.MethodPost}, held.token, nil); err != nil {
			c.log.Debug("session not revoked, it ends with its lease", "error", err, "expires", held.ends)
		}
	}
	return nil
}
