// Package googleca is Google's Certificate Authority Service as a [ca.Client]:
// [Open] checks the settings and finds the credentials, [CA.CSRSign] orders a
// certificate of a pool, and [CA.WatchRoots] asks for the pool's roots at an
// interval. The same type speaks Mesh CA's protocol with a server that has it, and
// [CA.ExchangeToken] turns a workload's token into one that Google takes.
package googleca

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/api/option"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// patience ends a call whose caller set no deadline.
const patience = 30 * time.Second

// CA asks Google. It is safe for concurrent use; Close ends its connection.
type CA struct {
	settings Settings
	name     string // of who is asked, for errors
	pool     *pool  // of CAS, else nil
	mesh     *mesh  // of Mesh CA, else nil

	exchanger *exchanger
}

// Open checks the settings and reads the files that they name; nothing is sent but
// the question to the metadata server whether there is one, where ADC are looked
// for. An error is of the reason [ca.Invalid], or [ca.Unavailable] where a file or
// the credentials are not there, as they may come.
func Open(ctx context.Context, settings Settings) (*CA, error) { return open(ctx, settings) }

// open takes further options for the client library, which win.
func open(ctx context.Context, settings Settings, opts ...option.ClientOption) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings = settings.withDefaults()
	if settings.Log == nil {
		settings.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	c := &CA{settings: settings, name: settings.CAPool}
	if c.exchanger, err = newExchanger(settings); err != nil {
		return nil, err
	}
	if settings.Protocol == MeshCA {
		c.name = settings.Endpoint
		c.mesh, err = newMesh(settings)
	} else {
		c.pool, err = newPool(ctx, settings, opts)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Close ends the connection; a call that is in flight fails.
func (c *CA) Close() error {
	if c.mesh != nil {
		return c.mesh.conn.Close()
	}
	return c.pool.client.Close()
}

// CSRSign implements [ca.Client]. A request that does not fit the settings is
// [ca.Invalid], and nothing was sent then. What the service answers has the reason
// of its code; a reply that is no chain is [ca.Internal]. The client library tries
// nothing again by itself.
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if err := c.check(req); err != nil {
		return ca.Certificate{}, err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	var cert ca.Certificate
	var err error
	if c.mesh != nil {
		cert, err = c.mesh.sign(ctx, req)
	} else {
		cert, err = c.pool.sign(ctx, req)
	}
	return cert, c.failure(ctx, err, req.Token)
}

// check refuses what could not be signed, or would go to the wrong place.
func (c *CA) check(req ca.SignRequest) error {
	switch byToken := c.settings.Credentials == Token; {
	case req.ID == "":
		return ca.Errorf(ca.Invalid, "the request has no ID, by which the service would know a retry")
	case byToken && req.Token == "":
		return ca.Errorf(ca.Unauthenticated, "credentials is %q, and the request has no token: give the provider's entry a token", Token)
	case !byToken && req.Token != "":
		return ca.Errorf(ca.Invalid, "the request has a token, and credentials is %q: set credentials to token, or remove token from the provider's entry", c.settings.Credentials)
	}
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	id, err := pki.IdentityOfCSR(csr)
	names := len(id.DNSNames) + len(id.IPAddresses) + len(req.DNSNames) + len(req.IPAddresses)
	switch {
	case err != nil:
		return ca.Errorf(ca.Invalid, "the CSR: %w", err)
	case names > 0 && (c.mesh != nil || c.settings.SubjectMode == ReflectedSPIFFE):
		return ca.Errorf(ca.Invalid, "a SPIFFE ID alone is signed by protocol %s and subject_mode %s: take the DNS names and IP addresses out of the secret, or have another provider sign it", c.settings.Protocol, c.settings.SubjectMode)
	}
	return nil
}

// failure classifies what a call ended with, and says whose answer it is.
func (c *CA) failure(ctx context.Context, err error, token ca.Token) error {
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if _, ours := errors.AsType[*ca.Error](err); ours {
		return err
	}
	upstream, ok := errors.AsType[*ca.Error](wire.FromUpstream(err, token))
	if !ok {
		return err
	}
	upstream.Message = c.name + ": " + upstream.Message
	return upstream
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// seconds rounds up, as half a second would else be none.
func seconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }
