// Package googleca is a client of Google's Certificate Authority Service as a [ca.Client].
// [Open] checks the settings and finds the credentials, [CA.CSRSign] requests a certificate
// from a CA pool, and [CA.WatchRoots] polls the pool's roots. With the protocol [MeshCA] the
// same type calls a server that speaks Mesh CA's protocol. [CA.ExchangeToken] exchanges a
// workload's token for a Google access token. countersign-provider-google serves it as a
// process; call Open to use it in another program.
//
// The package starts no goroutine beside the gRPC connection's. The pool's state that signing
// and watching share, the known roots and the newest token, is behind a mutex.
package googleca

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/api/option"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// patience bounds a call whose caller set no deadline.
const patience = 30 * time.Second

// CA calls Google. It is safe for concurrent use. Close closes its connection.
type CA struct {
	settings Settings
	name     string // of the pool or server, for errors
	pool     *pool  // nil with Mesh CA
	mesh     *mesh  // nil with CAS

	exchanger *exchanger
}

// Open checks the settings and reads the files that they name. It sends nothing, except that
// the search for Application Default Credentials may probe the metadata server. An error has
// the reason [ca.Invalid], or [ca.Unavailable] if a file or the credentials are missing, as
// they may come later.
func Open(ctx context.Context, settings Settings) (*CA, error) { return open(ctx, settings) }

// open takes additional options for the client library, which take precedence.
func open(ctx context.Context, settings Settings, opts ...option.ClientOption) (*CA, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings = settings.withDefaults()
	settings.Log = cmp.Or(settings.Log, slog.New(slog.DiscardHandler))
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

// Close closes the connection. Calls in flight fail.
func (c *CA) Close() error {
	if c.mesh != nil {
		return c.mesh.conn.Close()
	}
	return c.pool.client.Close()
}

// CSRSign implements [ca.Client]. A request that does not fit the settings fails with
// [ca.Invalid] before anything is sent. An error of the service has the reason of its gRPC
// code; a reply without a valid chain is [ca.Internal]. Nothing is retried: that is the
// host's to do.
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

// check refuses what cannot be signed, and a token where none is to be sent.
func (c *CA) check(req ca.SignRequest) error {
	switch byToken := c.settings.Credentials == Token; {
	case req.ID == "":
		return ca.Errorf(ca.Invalid, "the request has no ID, which the service recognizes a retry by")
	case byToken && req.Token == "":
		return ca.Errorf(ca.Unauthenticated, "credentials is %q, but the request has no token: set the provider's token source", Token)
	case !byToken && req.Token != "":
		return ca.Errorf(ca.Invalid, "the request has a token, but credentials is %q: set credentials to token, or remove the provider's token source", c.settings.Credentials)
	}
	return c.settings.checkNames(req)
}

// failure maps the error of a call and names the pool or server in it.
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

// seconds rounds up, as the service counts whole seconds.
func seconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }
