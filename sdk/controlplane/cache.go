// Package controlplane mounts Countersign's secrets in a control plane that is built
// on go-control-plane: [New] makes a cache for the Secret type, which stands in a
// MuxCache beside the caches of listeners, clusters and whatever else there is.
//
// That interface knows no peer, so who asks is a function of the request's node; see
// [Config]. What it demands of a cache is written down in watch.go.
package controlplane

import (
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

// TypeURL is the one type that a [Cache] answers for, the key of its place in a
// MuxCache that classifies by type.
const TypeURL = sds.TypeURL

// Config is what a [Cache] is made of.
type Config struct {
	// Secrets are what is served. Required.
	Secrets secret.Source
	// Caller returns who asks, or a status error that ends the stream or fetch. It is
	// asked for each request and must not block. Required.
	//
	// A node is what the client says of itself. Where one client must not get what is
	// another's, the control plane's callbacks have to hold node.id against the peer
	// of the stream, or to put what they verified in its place.
	Caller func(*corev3.Node) (secret.Caller, error)
	// Refused is told of each name that is left out, as nobody configured it or not
	// for this caller: once on a stream at least. The name is the client's own text. It
	// must not block, and is called by several goroutines. Default: nobody is told.
	Refused func(caller secret.Caller, name string)
	// Hold is how long the update of a certificate waits for the acknowledgement of
	// the roots that it leads to. Default: 5 s; negative: not at all.
	Hold time.Duration
}

const (
	// maxNames and maxName (in bytes) bound what a client may ask for, as on an
	// engine of sdk/xds.
	maxNames = 10_000
	maxName  = 8300
	// maxResponse bounds the bytes of the resources in one response: clients refuse more
	// than 4 MiB by default. What does not fit follows in the next.
	maxResponse = 2 << 20
)

// Cache is the cache of secrets. Its methods may be called by any number of
// goroutines at once. Make one with [New]; it has nothing to be closed.
type Cache struct {
	cfg       Config
	resources xds.Source[secret.Caller]
}

var _ cachev3.Cache = (*Cache)(nil)

// New checks the configuration and returns a cache. It starts nothing: a goroutine
// belongs to each open watch.
func New(cfg Config) (*Cache, error) {
	switch {
	case cfg.Secrets == nil:
		return nil, errors.New("controlplane: Config.Secrets is required: what is to be served?")
	case cfg.Caller == nil:
		return nil, errors.New("controlplane: Config.Caller is required: the cache sees no peer, so it must be told who a node is")
	}
	if cfg.Refused == nil {
		cfg.Refused = func(secret.Caller, string) {}
	}
	if cfg.Hold == 0 {
		cfg.Hold = 5 * time.Second
	}
	return &Cache{cfg: cfg, resources: sds.Resources(cfg.Secrets)}, nil
}

// CreateWatch answers a state-of-the-world request as soon as there is something that
// the client does not have, and again with each change until it is cancelled. An
// error is a status that ends the stream: another type, too many names, a caller who
// is refused, a source that is closed (Unavailable).
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

// CreateDeltaWatch answers an incremental request, otherwise like [Cache.CreateWatch].
// A name that is refused is in removed_resources, once.
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

// Fetch answers once. It waits for secrets that are not ready until ctx ends; refused
// names are left out, and where that leaves nothing the answer is NotFound.
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

// request is what both dialects ask with.
type request interface {
	GetTypeUrl() string
	GetNode() *corev3.Node
	GetResponseNonce() string
	GetErrorDetail() *rpcstatus.Status
}

// accepted returns the nonce of the response that a request acknowledges, if it does.
func accepted(req request) string {
	if req.GetErrorDetail() != nil {
		return ""
	}
	return req.GetResponseNonce()
}

// subscribe returns the names of a request as a subscription. Neither no name nor the
// wildcard is a subscription for secrets.
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
	slices.Sort(s.names) // so that the same content is the same bytes
	return s, nil
}
