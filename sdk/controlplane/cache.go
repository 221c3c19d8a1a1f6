// Package controlplane serves Countersign's secrets from a control plane built on
// go-control-plane: its author calls [New] and puts the [Cache] for the Secret type
// into a MuxCache beside the caches for listeners, clusters and other types.
//
// go-control-plane's cache interface has no peer, so the caller is derived from the
// request's node; see [Config]. watch.go lists what the interface requires of a cache.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// TypeURL is the only type a [Cache] serves, and its key in a MuxCache that classifies
// by type.
const TypeURL = sds.TypeURL

// Config configures a [Cache]. Secrets and Caller are required.
type Config struct {
	// Secrets is the source to serve. Required.
	Secrets secret.Source
	// Caller returns the caller, or a status error that ends the stream or fetch. It is
	// called for every request and must not block. Required.
	//
	// A node is self-declared and proves nothing. If clients must not get each other's
	// secrets, the control plane's callbacks must check node.id against the stream's
	// peer or replace it with a verified value.
	Caller func(*corev3.Node) (secret.Caller, error)
	// Refused is called for each name left out because it is not configured, or not for
	// this caller: at least once per stream. The name is client-supplied text. Refused
	// must not block and must be safe for concurrent use. Default: none.
	Refused func(caller secret.Caller, name string)
	// Hold limits how long a certificate update waits for the ACK of the roots it
	// chains to. Default: 5 s; negative disables waiting.
	Hold time.Duration
}

const (
	// maxNames and maxName (in bytes) limit what a client may request, as in an sdk/xds
	// engine.
	maxNames = 10_000
	maxName  = 8300
	// maxResponse limits the bytes of resources in one response: gRPC clients reject
	// more than 4 MiB by default. The rest follows in the next response.
	maxResponse = 2 << 20
)

// Cache is a go-control-plane cache for secrets. Its methods are safe for concurrent
// use. Create one with [New]; it needs no Close.
type Cache struct {
	cfg       Config
	resources xds.Source[secret.Caller]
}

var _ cachev3.Cache = (*Cache)(nil)

// New checks the configuration and returns a cache. It starts nothing: each open watch
// has its own goroutine.
func New(cfg Config) (*Cache, error) {
	switch {
	case cfg.Secrets == nil:
		return nil, errors.New("controlplane: Config.Secrets is required: what is to be served?")
	case cfg.Caller == nil:
		return nil, errors.New("controlplane: Config.Caller is required: the cache sees no peer, so Caller must identify a node")
	}
	if cfg.Refused == nil {
		cfg.Refused = func(secret.Caller, string) {}
	}
	cfg.Hold = cmp.Or(cfg.Hold, 5*time.Second)
	return &Cache{cfg: cfg, resources: sds.Resources(cfg.Secrets)}, nil
}

// CreateWatch answers a state-of-the-world request as soon as there is something new
// for the client, and again after each change until it is cancelled. An error is a
// status that ends the stream: an unsupported type, too many names, a refused caller,
// or a closed source (Unavailable).
func (c *Cache) CreateWatch(req *cachev3.Request, sub cachev3.Subscription, out chan cachev3.Response) (cancel func(), err error) {
	s, err := c.subscribe(req, sub.SubscribedResources())
	if err != nil {
		return nil, err
	}
	s.bring(sub.ReturnedResources(), accepted(req))
	return open(s, out, func(b batch, err error, taken func()) cachev3.Response {
		return newResponse(req, b, err, taken)
	})
}

// CreateDeltaWatch answers an incremental request; otherwise it is like
// [Cache.CreateWatch]. A refused name appears in removed_resources, once.
func (c *Cache) CreateDeltaWatch(req *cachev3.DeltaRequest, sub cachev3.Subscription, out chan cachev3.DeltaResponse) (cancel func(), err error) {
	s, err := c.subscribe(req, sub.SubscribedResources())
	if err != nil {
		return nil, err
	}
	s.removes = true
	s.bring(sub.ReturnedResources(), accepted(req))
	s.afresh(req.GetResourceNamesSubscribe(), req.GetInitialResourceVersions())
	return open(s, out, func(b batch, err error, taken func()) cachev3.DeltaResponse {
		return newDeltaResponse(req, b, err, taken)
	})
}

// Fetch answers once. It waits until ctx ends for secrets that are not ready. Refused
// names are left out; if none remain the error is NotFound.
func (c *Cache) Fetch(ctx context.Context, req *cachev3.Request) (cachev3.Response, error) {
	names := map[string]struct{}{}
	for _, name := range req.GetResourceNames() {
		names[name] = struct{}{}
	}
	s, err := c.subscribe(req, names)
	if err != nil {
		return nil, err
	}
	b, err := s.all(ctx)
	switch {
	case err != nil:
		return nil, err
	case b.full:
		return nil, status.Errorf(codes.ResourceExhausted, "the secrets have more than %d bytes, ask for fewer at once", maxResponse)
	case len(b.resources) == 0:
		return nil, status.Error(codes.NotFound, "none of the resource_names is known")
	}
	r := newResponse(req, b, nil, func() {})
	r.ctx = ctx
	return r, nil
}

// request is what requests of both dialects have in common.
type request interface {
	GetTypeUrl() string
	GetNode() *corev3.Node
	GetResponseNonce() string
	GetErrorDetail() *rpcstatus.Status
}

// accepted returns the nonce of the response a request acknowledges, or "".
func accepted(req request) string {
	if req.GetErrorDetail() != nil {
		return ""
	}
	return req.GetResponseNonce()
}

// subscribe turns a request's names into a subscription. For secrets neither an empty
// list nor the wildcard subscribes to anything.
func (c *Cache) subscribe(req request, names map[string]struct{}) (*subscription, error) {
	switch {
	case req.GetTypeUrl() != TypeURL:
		return nil, status.Errorf(codes.InvalidArgument, "type_url %.256q is not served by the cache of secrets, only %s is", req.GetTypeUrl(), TypeURL)
	case len(names) > maxNames:
		return nil, status.Errorf(codes.ResourceExhausted, "%d secrets on one stream are too many, %d are allowed", len(names), maxNames)
	}
	caller, err := c.cfg.Caller(req.GetNode())
	if err != nil {
		return nil, err
	}
	s := &subscription{cache: c, caller: caller, had: map[string]had{}, held: map[string]time.Time{}}
	for name := range names {
		s.names = append(s.names, name)
	}
	slices.Sort(s.names) // so that equal content has equal bytes
	return s, nil
}
