//go:build cgo

package pkcs11

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/miekg/pkcs11"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Config identifies a token and labels its keys.
type Config struct {
	// Module is the path of the device's library, such as libsofthsm2.so. A process may
	// open it only once. Required.
	Module string
	// Token is the label of the token. Required.
	Token string
	// PIN returns the user's PIN. It is called at each login: at the start, and after
	// the token was away. A rejected PIN is not tried again because a token locks
	// itself after a few failures. Required.
	PIN func(context.Context) (string, error)
	// Label is the CKA_LABEL of the generated keys. Open destroys those left by an
	// earlier run, so it must be unique to the program. Required.
	Label string
	// Log never receives the PIN. Default: [slog.Default].
	Log *slog.Logger
}

// Token generates keys and signs with them. Its methods are safe for concurrent use.
type Token struct {
	config Config
	module *pkcs11.Ctx

	mu      sync.Mutex // serializes logins
	slot    uint
	login   pkcs11.SessionHandle // always open: the token ends the login with its last session
	refused [sha256.Size]byte    // the rejected PIN
	closed  bool
	cleanup sync.WaitGroup
}

var _ secret.KeySource = (*Token)(nil)

// Open loads the library, logs in, and destroys keys left by an earlier run.
func Open(ctx context.Context, config Config) (*Token, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config.Log = cmp.Or(config.Log, slog.Default())
	module := pkcs11.New(config.Module)
	if module == nil {
		return nil, fmt.Errorf("pkcs11: the library %q cannot be loaded", config.Module)
	}
	if err := module.Initialize(); err != nil {
		module.Destroy()
		return nil, fmt.Errorf("pkcs11: the library %q cannot be used, or is in use by this process already: %w", config.Module, err)
	}
	t := &Token{config: config, module: module}
	err := t.logIn(ctx)
	if err == nil {
		err = t.destroyAll()
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (c Config) check() error {
	switch {
	case c.Module == "":
		return errors.New("pkcs11: Config.Module is empty; name the device's library")
	case c.Token == "":
		return errors.New("pkcs11: Config.Token is empty; write the token's label")
	case c.Label == "":
		return errors.New("pkcs11: Config.Label is empty; write what this program's keys are called")
	case c.PIN == nil:
		return errors.New("pkcs11: Config.PIN is nil")
	}
	return nil
}

// logIn logs in, initially or after the login was lost.
func (t *Token) logIn(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ca.Errorf(ca.Unavailable, "pkcs11: the token is closed")
	}
	slot, err := t.find()
	if err != nil {
		return err
	}
	session, err := t.module.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION)
	if err != nil {
		return t.away("open a session", err)
	}
	if err := t.present(ctx, session); err != nil {
		return errors.Join(err, t.module.CloseSession(session))
	}
	if t.login != 0 {
		_ = t.module.CloseSession(t.login) // most likely already lost
	}
	t.slot, t.login = slot, session
	return nil
}

// present sends the PIN.
func (t *Token) present(ctx context.Context, session pkcs11.SessionHandle) error {
	pin, err := t.config.PIN(ctx)
	if err != nil {
		return ca.Errorf(ca.Unavailable, "pkcs11: cannot obtain the PIN of token %q", t.config.Token) // the underlying error may quote the PIN
	}
	sum := sha256.Sum256([]byte(pin))
	if sum == t.refused {
		return ca.Errorf(ca.Denied, "pkcs11: the PIN of token %q was not accepted and is not tried again, as the token would lock itself", t.config.Token)
	}
	err = t.module.Login(session, pkcs11.CKU_USER, pin)
	switch {
	case err == nil, is(err, pkcs11.CKR_USER_ALREADY_LOGGED_IN):
		return nil
	case is(err, pkcs11.CKR_PIN_INCORRECT, pkcs11.CKR_PIN_LOCKED, pkcs11.CKR_PIN_EXPIRED, pkcs11.CKR_PIN_INVALID, pkcs11.CKR_PIN_LEN_RANGE):
		t.refused = sum
		return ca.Errorf(ca.Denied, "pkcs11: the PIN of token %q was not accepted: %w", t.config.Token, err)
	}
	return t.away("log in", err)
}

// find returns the slot that currently has the token.
func (t *Token) find() (uint, error) {
	slots, err := t.module.GetSlotList(true)
	if err != nil {
		return 0, t.away("list the slots", err)
	}
	for _, slot := range slots {
		info, err := t.module.GetTokenInfo(slot)
		if err == nil && strings.TrimRight(info.Label, " \x00") == t.config.Token {
			return slot, nil
		}
	}
	return 0, ca.Errorf(ca.Unavailable, "pkcs11: no slot of %q has a token %q", t.config.Module, t.config.Token)
}

func (t *Token) away(what string, err error) error {
	return ca.Errorf(ca.Unavailable, "pkcs11: token %q: %s: %w", t.config.Token, what, err)
}

// with runs f in its own session, and once more if the session, the login or the token
// was lost meanwhile.
func (t *Token) with(ctx context.Context, f func(session pkcs11.SessionHandle) error) error {
	err := t.once(f)
	if !isLost(err) {
		return err
	}
	t.config.Log.Warn("PKCS #11 session lost, logging in again", "token", t.config.Token, "error", err)
	if err := t.logIn(ctx); err != nil {
		return err
	}
	return t.once(f)
}

func (t *Token) once(f func(session pkcs11.SessionHandle) error) error {
	t.mu.Lock()
	slot, closed := t.slot, t.closed
	if !closed {
		t.cleanup.Add(1) // Close waits for calls in progress
	}
	t.mu.Unlock()
	if closed {
		return ca.Errorf(ca.Unavailable, "pkcs11: the token is closed")
	}
	defer t.cleanup.Done()
	session, err := t.module.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION)
	if err != nil {
		return t.away("open a session", err)
	}
	defer func() { _ = t.module.CloseSession(session) }() // it may be lost
	return f(session)
}

// errNoObject means that the token has no such key. A logged-out token shows none.
var errNoObject = errors.New("the token has no such key")

// isLost reports whether a new login may help.
func isLost(err error) bool {
	return errors.Is(err, errNoObject) || is(err, pkcs11.CKR_SESSION_HANDLE_INVALID, pkcs11.CKR_SESSION_CLOSED, pkcs11.CKR_USER_NOT_LOGGED_IN,
		pkcs11.CKR_TOKEN_NOT_PRESENT, pkcs11.CKR_DEVICE_REMOVED, pkcs11.CKR_DEVICE_ERROR, pkcs11.CKR_SLOT_ID_INVALID, pkcs11.CKR_OBJECT_HANDLE_INVALID,
		pkcs11.CKR_KEY_HANDLE_INVALID)
}

func is(err error, codes ...uint) bool {
	code, ok := errors.AsType[pkcs11.Error](err)
	for _, c := range codes {
		if ok && uint(code) == c {
			return true
		}
	}
	return false
}

// Close waits for signatures in progress, destroys the generated keys, logs out and
// unloads the library. Keys cannot sign afterwards. It may be called more than once.
func (t *Token) Close() error {
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if closed {
		return nil
	}
	err := t.destroyAll()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cleanup.Wait()
	err = errors.Join(err, t.module.Finalize())
	t.module.Destroy()
	return err
}
