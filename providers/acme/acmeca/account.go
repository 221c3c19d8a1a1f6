package acmeca

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	keyFile = "account.pem"
	// nextFile has the key of a rollover in progress. It is written before the server
	// gets the key, so that a crash in between loses no account.
	nextFile = "account-next.pem"
	maxKey   = 64 << 10
	// rolloverPause is the time between two attempts.
	rolloverPause = time.Hour
)

// account is the account that orders are made by. It is safe for concurrent use.
type account struct {
	settings Settings
	server   *server
	folder   *folder
	log      *slog.Logger
	now      func() time.Time

	turn    chan struct{} // its holder opens the account, or rolls its key over
	mu      sync.Mutex
	held    signer // the zero value: not opened yet
	made    time.Time
	retryAt time.Time // of the rollover
}

func newAccount(settings Settings, server *server, folder *folder, log *slog.Logger) *account {
	return &account{settings: settings, server: server, folder: folder, log: log, now: time.Now, turn: make(chan struct{}, 1)}
}

// signer returns who signs requests: the account, which is opened first if need be.
func (a *account) signer(ctx context.Context) (signer, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return signer{}, ca.Errorf(ca.ReasonFor(ctx.Err()), "waiting for the account of another order")
	}
	if _, err := a.opened(ctx); err != nil {
		return signer{}, err
	}
	if a.due() {
		if err := a.rollOver(ctx); err != nil {
			a.log.Warn("the account's key was not replaced", "error", err, "again_in", rolloverPause)
		}
	}
	return a.opened(ctx) // after a failed rollover it is not
}

// opened returns the account, which is opened first if need be. Never is it the zero value
// without an error: to a kept order, that is another account.
func (a *account) opened(ctx context.Context) (signer, error) {
	if held := a.current(); held.kid != "" {
		return held, nil
	}
	err := a.open(ctx)
	return a.current(), err
}

func (a *account) current() signer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// forget has the account opened again: the server does not know it, or not by this key.
func (a *account) forget(old signer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held == old {
		a.held = signer{}
	}
}

func (a *account) hold(s signer, made time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held, a.made = s, made
}

// open finds or makes the account of the kept key. It asks for an existing one first, which
// needs no external binding: its key may be good for one account. If a rollover was interrupted,
// the server has either key.
func (a *account) open(ctx context.Context) error {
	if next, made, err := a.folder.key(nextFile); err == nil {
		url, err := a.register(ctx, next, true)
		switch {
		case err == nil:
			if err := a.folder.rename(nextFile, keyFile); err != nil {
				return unusable(err)
			}
			a.hold(signer{next, url}, made)
			return nil
		case kindOf(err) != "accountDoesNotExist":
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return unusable(err)
	}
	key, made, err := a.folder.key(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return a.begin(ctx)
	}
	if err != nil {
		return unusable(err)
	}
	a.checkMode()
	url, err := a.register(ctx, key, true)
	if err != nil && !waits(err) {
		url, err = a.register(ctx, key, false)
	}
	if err == nil {
		a.hold(signer{key, url}, made)
	}
	return err
}

// checkMode warns of a key that was brought along and that others can read.
func (a *account) checkMode() {
	if info, err := a.folder.root.Stat(keyFile); err == nil && looseMode(info.Mode()) {
		a.log.Warn("others can read the account's key or its group can write it; use mode 0600 or 0640",
			"path", filepath.Join(a.settings.StateDir, keyFile), "mode", info.Mode().Perm().String())
	}
}

// begin makes a key and an account. Of two processes that make a key at once, both use that of
// the first.
func (a *account) begin(ctx context.Context) error {
	if err := a.newKey(keyFile); err != nil && !errors.Is(err, fs.ErrExist) {
		return unusable(err)
	}
	key, made, err := a.folder.key(keyFile)
	if err != nil {
		return unusable(err)
	}
	url, err := a.register(ctx, key, false)
	if err == nil {
		a.hold(signer{key, url}, made)
	}
	return err
}

func (a *account) newKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // ES256: all servers take it
	if err != nil {
		return err
	}
	encoded, err := pki.EncodeKey(key)
	if err != nil {
		return err
	}
	return a.folder.create(file, encoded)
}

// unusable is the error of the folder's files, or nil.
func unusable(err error) error {
	if err == nil {
		return nil
	}
	return ca.Errorf(ca.Unavailable, "state_dir: %w", err)
}

// due reports whether the key is old enough to be replaced.
func (a *account) due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	after, now := a.settings.RolloverAfter, a.now()
	return after > 0 && now.Sub(a.made) >= after && !now.Before(a.retryAt)
}

// rollOver replaces the account's key (RFC 8555, section 7.3.5). The new key is kept before
// the server learns it, and takes the place of the old one after that.
func (a *account) rollOver(ctx context.Context) error {
	a.mu.Lock()
	a.retryAt = a.now().Add(rolloverPause)
	a.mu.Unlock()
	if err := a.newKey(nextFile); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	next, made, err := a.folder.key(nextFile)
	if err != nil {
		return err
	}
	old := a.current()
	err = a.change(ctx, old, next)
	if err == nil {
		err = a.folder.rename(nextFile, keyFile)
	}
	if err != nil {
		a.forget(old) // the answer may be lost: open asks which key counts
		return err
	}
	a.hold(signer{next, old.kid}, made)
	a.log.Info("the account's key was replaced")
	return nil
}

func (a *account) change(ctx context.Context, old signer, next crypto.Signer) error {
	dir, err := a.server.directory(ctx)
	if err != nil {
		return err
	}
	if dir.KeyChange == "" {
		return ca.Errorf(ca.Unimplemented, "the CA replaces no keys")
	}
	to, err := a.server.at(dir.KeyChange)
	if err != nil {
		return err
	}
	request, err := json.Marshal(map[string]any{"account": old.kid, "oldKey": jose.JSONWebKey{Key: old.key.Public()}})
	if err != nil {
		return err
	}
	inner, err := signer{key: next}.sign(to, "", request)
	if err != nil {
		return err
	}
	_, err = a.server.post(ctx, old, to, json.RawMessage(inner))
	return err
}

// algorithmOf returns the signature algorithm of an account's key.
func algorithmOf(key crypto.Signer) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		}
	case *rsa.PrivateKey:
		return jose.RS256, nil
	}
	return "", ca.Errorf(ca.Invalid, "state_dir: %s has a key of another type than ECDSA P-256, P-384 or RSA", keyFile)
}

// thumbprint is the account's part of an answer to a challenge (RFC 7638).
func (g signer) thumbprint() (string, error) {
	sum, err := (&jose.JSONWebKey{Key: g.key.Public()}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", ca.Errorf(ca.Internal, "the account's key: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}

// key reads a private key, and returns when it was made. An error does not quote the key.
func (f *folder) key(file string) (crypto.Signer, time.Time, error) {
	content, made, err := f.read(file, maxKey)
	if err != nil {
		return nil, made, err
	}
	key, err := pki.ParseKey(content)
	if err != nil {
		return nil, made, &os.PathError{Op: "parse", Path: file, Err: err}
	}
	return key, made, nil
}

// changed reports whether the kept key is another one than that of a signer: another process
// has replaced it.
func (a *account) changed(from signer) bool {
	key, _, err := a.folder.key(keyFile)
	return err == nil && !pki.SameKey(key.Public(), from.key.Public())
}
