// Package fileca is a certificate authority in a folder, in the layout that Istio
// reads its plugged-in CA from: [Open] reads and checks it, and what it returns is
// a [ca.Client], [ca.RootSource] and [ca.RootWatcher]. A changed folder is taken
// over as a whole or, where it does not check, not at all.
package fileca

import (
	"context"
	"crypto/x509"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/filewatch"
)

// CA signs with what its folder holds. It is safe for concurrent use.
type CA struct {
	dir    string
	limits limits
	log    *slog.Logger
	now    func() time.Time

	held atomic.Pointer[held] // replaced by the goroutine of watch alone
	stop context.CancelFunc
	done chan struct{} // closed when that goroutine has ended
	over <-chan struct{}
}

// held is the authority of the moment.
type held struct {
	*authority
	replaced chan struct{} // closed when another is held
}

// Open reads the folder and keeps an eye on it until [CA.Close]; ctx bounds the
// opening alone. An error is a [ca.Error], of the reason [ca.Invalid] where a
// setting or a file is wrong, and names it.
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
	log := settings.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if settings.SelfSigned {
		if err := makeSelfSigned(ctx, dir, now(), log); err != nil {
			return nil, err
		}
	}
	c := &CA{dir: dir, limits: limits, log: log, now: now, done: make(chan struct{})}
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

// take checks the files and holds the authority that they are.
func (c *CA) take(files *files) error {
	next, err := newAuthority(c.dir, files, c.now())
	if err != nil {
		return err
	}
	if looseMode(files.keyMode) {
		c.log.Warn("the CA's key can be read by others or written by its group: use mode 0600 or 0640",
			"path", filepath.Join(c.dir, keyFile), "mode", files.keyMode.Perm().String())
	}
	before := c.held.Swap(&held{next, make(chan struct{})})
	if before != nil {
		close(before.replaced)
	}
	c.log.Info("the CA is read", "dir", c.dir, "subject", next.cert.Subject.String(),
		"fingerprint", pki.Fingerprint(next.cert), "until", stamp(next.notAfter), "roots", next.roots.Len())
	return nil
}

// Close ends the watch of the folder and returns when it has ended. It may be
// called again.
func (c *CA) Close() error {
	c.stop()
	<-c.done
	return nil
}

// CSRSign implements [ca.Client]. It signs a CSR whose names are exactly those of
// the request; a wrong one is [ca.Invalid], another trust domain than the one set
// [ca.Denied], an expired CA [ca.Unavailable]. Each call makes a new certificate.
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if err := ctx.Err(); err != nil {
		return ca.Certificate{}, err
	}
	csr, id, err := c.limits.checkRequest(req)
	if err != nil {
		return ca.Certificate{}, err
	}
	a := c.held.Load().authority
	begin, end, err := a.lifetime(req.TTL, c.limits.maxTTL, c.now())
	if err != nil {
		return ca.Certificate{}, err
	}
	leaf, err := a.sign(csr, id, begin, end)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "%w", err)
	}
	chain := append([]*x509.Certificate{leaf}, a.above...)
	return ca.Certificate{Chain: pki.EncodeCertificates(chain), Roots: a.roots.PEM()}, nil
}

// Roots implements [ca.RootSource]: what root-cert.pem holds.
func (c *CA) Roots(context.Context) ([]byte, error) {
	return c.held.Load().roots.PEM(), nil
}

// WatchRoots implements [ca.RootWatcher]. It ends with [ca.Unavailable] when the CA
// is closed.
func (c *CA) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	var told *pki.Bundle
	for {
		now := c.held.Load()
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
