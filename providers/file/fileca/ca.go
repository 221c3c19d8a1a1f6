// Package fileca is a certificate authority whose certificate and key are files in a folder,
// in the layout of Istio's plugged-in CA. [Open] reads and checks the folder and returns a
// [ca.Client], [ca.RootSource], [ca.RootWatcher], [ca.NameCertifier], [ca.RevocationSource],
// [ca.JWTSigner] and [ca.WITSigner], which is experimental.
// countersign-provider-file serves it as a process; call Open to use it in another program.
//
// One goroutine watches the folder and is the only one to replace the CA in use. It takes a
// changed folder over as a whole, or keeps the CA before if the new files are invalid.
package fileca

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/filewatch"
)

// CA signs with the certificate and key in its folder. It is safe for concurrent use.
type CA struct {
	dir    string
	limits limits
	log    *slog.Logger
	now    func() time.Time
	jwt    *svidKeys
	wit    *svidKeys

	current atomic.Pointer[inUse] // replaced by the goroutine of watch only
	own     ownList
	stop    context.CancelFunc
	done    chan struct{} // closed when that goroutine ends
	over    <-chan struct{}
}

// inUse is the authority in use.
type inUse struct {
	*authority
	replaced chan struct{} // closed when another takes its place
}

// Open reads the folder and watches it until [CA.Close]. ctx bounds Open only. An error is a
// [ca.Error]; it has the reason [ca.Invalid] if a setting or a file is invalid, and
// [ca.Unavailable] if that may pass: a file is missing or the files keep changing, or the CA
// has expired or is not valid yet. Both name the file.
func Open(ctx context.Context, settings Settings) (*CA, error) {
	return open(ctx, settings, time.Now)
}

func open(ctx context.Context, settings Settings, now func() time.Time) (*CA, error) {
	limits, err := settings.parse()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(settings.Dir)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "dir: %w", err)
	}
	log := cmp.Or(settings.Log, slog.New(slog.DiscardHandler))
	if settings.SelfSigned {
		if err := makeSelfSigned(ctx, dir, limits.rootKey, now(), log); err != nil {
			return nil, err
		}
	}
	c := &CA{dir: dir, limits: limits, log: log, now: now, done: make(chan struct{})}
	c.jwt = &svidKeys{svidKind: jwtKind, dir: dir, log: log, now: now}
	c.wit = &svidKeys{svidKind: witKind, dir: dir, log: log, now: now}
	if err := c.start(filewatch.Options{Poll: limits.poll, Log: log}); err != nil {
		return nil, err
	}
	return c, nil
}

// start loads the folder and begins to watch it.
func (c *CA) start(opts filewatch.Options) error {
	// Watched before it is read, so that no change falls between the two.
	changed, stop := filewatch.Watch(opts, filepath.Join(c.dir, certFile), filepath.Join(c.dir, keyFile),
		filepath.Join(c.dir, chainFile), filepath.Join(c.dir, rootFile))
	files, err := readFiles(c.dir)
	if err == nil {
		err = c.take(files)
	}
	if err != nil {
		stop()
		if mayPass(err) {
			return ca.Errorf(ca.Unavailable, "%w", err)
		}
		return ca.Errorf(ca.Invalid, "%w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop, c.over = cancel, ctx.Done()
	go func() {
		defer close(c.done)
		defer stop()
		c.watch(ctx, changed, files.sum())
	}()
	return nil
}

// mayPass reports whether the folder may become valid by itself, as one that is mounted later.
// It judges by the error alone: what was missing may be there by now.
func mayPass(err error) bool {
	_, isTime := errors.AsType[timeError](err)
	return isTime || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errUnsettled)
}

// take checks the files and uses the authority in them from now on.
func (c *CA) take(files *files) error {
	next, err := newAuthority(c.dir, files, c.now())
	if err != nil {
		return err
	}
	if looseMode(files.keyMode) {
		c.log.Warn("others can read the CA's key or its group can write it; use mode 0600 or 0640",
			"path", filepath.Join(c.dir, keyFile), "mode", files.keyMode.Perm().String())
	}
	before := c.current.Swap(&inUse{next, make(chan struct{})})
	if before != nil {
		close(before.replaced)
	}
	for _, reason := range next.leftOut {
		c.log.Warn("a root is left out", "file", filepath.Join(c.dir, rootFile), "reason", reason)
	}
	c.log.Info("loaded the CA", "dir", c.dir, "subject", fmt.Sprintf("%.256s", next.cert.Subject),
		"fingerprint", pki.Fingerprint(next.cert), "not_after", stamp(next.notAfter), "roots", next.roots.Len())
	return nil
}

// Close stops watching the folder and returns when the goroutine has ended. It may be called
// more than once.
func (c *CA) Close() error {
	c.stop()
	<-c.done
	return nil
}

// CSRSign implements [ca.Client]. It certifies the names of the request for the key of the
// CSR, whose names do not count. A malformed CSR and a request without names are
// [ca.Invalid], another trust domain than the configured one is [ca.Denied], and an expired
// CA [ca.Unavailable]. Each call makes a new certificate.
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if err := ctx.Err(); err != nil {
		return ca.Certificate{}, err
	}
	csr, id, err := c.limits.checkRequest(req)
	if err != nil {
		return ca.Certificate{}, err
	}
	a := c.current.Load().authority
	begin, end, err := a.lifetime(req.TTL, c.limits.maxTTL, c.now())
	if err != nil {
		return ca.Certificate{}, err
	}
	leaf, err := a.sign(csr, id, begin, end)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "%w", err)
	}
	chain := pki.EncodeBlock("CERTIFICATE", leaf)
	return ca.Certificate{Chain: append(chain, a.abovePEM...), Roots: bytes.Clone(a.rootsPEM)}, nil
}

// CertifiesNames implements [ca.NameCertifier].
func (c *CA) CertifiesNames(context.Context) error { return nil }

// Roots implements [ca.RootSource]. It returns the certificates of root-cert.pem.
func (c *CA) Roots(context.Context) ([]byte, error) {
	return c.current.Load().roots.PEM(), nil
}

// WatchRoots implements [ca.RootWatcher]. It returns [ca.Unavailable] after [CA.Close].
func (c *CA) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	var told *pki.Bundle
	for {
		now := c.current.Load()
		if !now.roots.Equal(told) {
			if err := changed(now.roots.PEM()); err != nil {
				return err
			}
			told = now.roots
		}
		select {
		case <-now.replaced:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.over:
			return ca.Errorf(ca.Unavailable, "the CA of %s is closed", c.dir)
		}
	}
}
