package istioca

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/authn"
)

// Config configures a [Server]. Issuer, Tokens and TLS are required.
type Config struct {
	// Issuer decides and signs: an [*ra.Engine] that has the doors of [Doors]. Required.
	Issuer ra.Issuer
	// Tokens verify tokens. They are asked in order, and the first that does not say
	// [authn.ErrNotMine] decides: a token that one of them refuses is tried at no other. A
	// TokenReview takes any token for its own and comes last. Where it remembers answers, set
	// Pods as well: else a pod that was deleted is served until its answer is forgotten.
	// Required.
	Tokens []authn.Named
	// IssuerClusters is the cluster, as rules have it, of the callers of an issuer of JWTs. It
	// may speak for any service account there, so give it a name of its own unless it is
	// the issuer of that very cluster. Callers of other issuers are refused. Default: none.
	IssuerClusters map[string]string
	// TLS holds the server's certificate, in GetCertificate if it rotates. TLS 1.3 alone is
	// spoken, and a client certificate is asked for with Renewals alone. Required.
	TLS *tls.Config
	// Renewals are of machines that present a certificate and no token. Default: none.
	Renewals Renewals
	// NodeProxies may ask for the service accounts of the pods on their node. It needs Pods.
	// Default: none.
	NodeProxies []Account
	// Pods looks up the pods of all clusters. With it, a caller whose token is bound to a pod is
	// served only while that pod is live. Default: none.
	Pods Pods
	// CertSigners are the values of CertSigner that are served, each by a door of its own, so
	// that the rules of that door choose the authority. Default: none.
	CertSigners []string
	// HoldNames refuses a CSR that has a name which the policy does not give the caller. One
	// with fewer passes, or with none. Default: the CSR's names count for nothing, as with istiod.
	HoldNames bool
	// Ready returns nil, or why no caller can be served yet. It is called for each call and must
	// not block. Default: ready at once.
	Ready func() error
	// Limits and Times bound what clients may use.
	Limits Limits
	Times  Times
	// Observe is called for each call that ends, for metrics. It must not block. Default: none.
	Observe func(Event)
	// Log never receives a token. Default: [slog.Default].
	Log *slog.Logger
}

// Account is a service account of a cluster.
type Account struct{ Cluster, Namespace, ServiceAccount string }

// Event is how a call ended. Its texts are few, and none comes from a client.
type Event struct {
	Result Result
	// Took is the time of the whole call.
	Took time.Duration
}

// Limits are counts and sizes. Exceeding one ends in ResourceExhausted, for a size in
// InvalidArgument unless gRPC itself sees it; an excess connection is closed.
type Limits struct {
	// Connections of all clients, and of one address; for IPv6, a network of 64 bits is one
	// address. Default: 20,000 and 2,000.
	Connections, ConnectionsOfAddress int
	// Authentications are the calls being authenticated, of all clients and of one address, and
	// the connections on which no call was authenticated yet. Default: 1,000 and 600.
	Authentications, AuthenticationsOfAddress int
	// Calls of authenticated callers, in total and of one caller: a pod, or all machines of a
	// service account or user. A machine, by its token or its chain of renewals, has at most as
	// many as are left for the others. A ztunnel has eight in flight. Default: 20,000 and 64.
	Calls, CallsOfCaller int
	// CallsOfConnection is how many calls a connection has at once. Default: 256.
	CallsOfConnection int
	// Message is the maximum size of a request in bytes, CSR that of its CSR and Metadata that
	// of its Struct. Default: 64, 32 and 8 KiB.
	Message, CSR, Metadata int
}

// Times are timeouts and intervals.
type Times struct {
	// Handshake is how long a connection may take to speak HTTP/2. It is closed unless a call
	// was authenticated within Handshake and Authenticate. Default: 10 s.
	Handshake time.Duration
	// Authenticate is how long authentication may take, Lookup each question about pods after
	// that, and Message the arrival of the request. Default: 10 s each.
	Authenticate, Lookup, Message time.Duration
	// Hold is how long a call waits for its certificate. A ztunnel has eight calls in flight,
	// so each that is held slows down the other pods of its node. Default: 10 s.
	Hold time.Duration
	// Drain is how long a stopping server waits for the calls in flight. Default: 10 s.
	Drain time.Duration
	// PingEvery is how long a client may be idle before it is pinged, PingTimeout how long it
	// may take to answer, PingAtMost the least interval of its own pings. Default: 30 s, 10 s
	// and 10 s.
	PingEvery, PingTimeout, PingAtMost time.Duration
	// Idle is how long a connection without calls is kept. Default: 5 min.
	Idle time.Duration
}

// doorName is that of the door for requests without CertSigner.
const doorName = "istio"

// Doors returns the engine's doors: "istio", and "istio/NAME" for each CertSigner. A rule
// for requests with a CertSigner names that door in [ra.Match.Doors]; a rule without Doors
// is for all of them, whatever authority it has. A request for less than a minute gets a minute.
func Doors(certSigners ...string) []ra.Door {
	doors := []ra.Door{{Name: doorName, LeastTTL: time.Minute}}
	for _, name := range certSigners {
		doors = append(doors, ra.Door{Name: doorOf(name), LeastTTL: time.Minute})
	}
	return doors
}

// IsDoor reports whether a name is that of a door of this package.
func IsDoor(name string) bool { return name == doorName || strings.HasPrefix(name, doorName+"/") }

func doorOf(certSigner string) string {
	if certSigner == "" {
		return doorName
	}
	return doorName + "/" + certSigner
}

// checked validates the config and returns it with defaults applied.
func (c Config) checked() (Config, error) {
	if err := c.fault(); err != nil {
		return c, fmt.Errorf("istioca: %w", err)
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Log = loglimit.Limit(c.Log)
	c.Tokens, c.IssuerClusters = slices.Clone(c.Tokens), maps.Clone(c.IssuerClusters)
	c.NodeProxies, c.CertSigners = slices.Clone(c.NodeProxies), slices.Clone(c.CertSigners)
	c.Renewals.setDefaults()
	c.Limits.setDefaults()
	c.Times.setDefaults()
	return c, nil
}

func (c Config) fault() error {
	switch {
	case c.Issuer == nil || len(c.Tokens) == 0:
		return errors.New("Config needs Issuer and Tokens")
	case slices.ContainsFunc(c.Tokens, func(t authn.Named) bool { return t.Authenticator == nil }):
		return errors.New("Config.Tokens has one without an Authenticator")
	case len(c.NodeProxies) > 0 && c.Pods == nil:
		return errors.New("Config.NodeProxies needs Pods: a proxy may only ask for pods on its own node")
	case slices.ContainsFunc(c.NodeProxies, func(a Account) bool { return a.Cluster == "" || a.Namespace == "" || a.ServiceAccount == "" }):
		return errors.New("Config.NodeProxies has one without Cluster, Namespace or ServiceAccount")
	}
	for issuer, cluster := range c.IssuerClusters {
		if issuer == "" || cluster == "" {
			return fmt.Errorf("Config.IssuerClusters has %.256q for the issuer %.256q: neither may be empty", cluster, issuer)
		}
	}
	for _, name := range c.CertSigners {
		if name == "" || text.Clean(name) != name {
			return fmt.Errorf("Config.CertSigners has %.256q: it needs a name that prints", name)
		}
	}
	return cmp.Or(tlsFault(c.TLS), c.Renewals.fault(), c.Limits.fault(), c.Times.fault())
}

func tlsFault(c *tls.Config) error {
	switch {
	case c == nil:
		return errors.New("Config.TLS is required: tokens are accepted only over TLS")
	case c.GetConfigForClient != nil:
		return errors.New("Config.TLS.GetConfigForClient would replace the server's own rules; use GetCertificate")
	case c.GetCertificate == nil && len(c.Certificates) == 0:
		return errors.New("Config.TLS has neither GetCertificate nor Certificates; the server needs a certificate")
	}
	return nil
}

// defaults are fields with their default values.
type defaults[T int | time.Duration] map[*T]T

func (d defaults[T]) set() {
	for field, value := range d {
		*field = cmp.Or(*field, value)
	}
}

func (d defaults[T]) fault(what string) error {
	for field := range d {
		if *field < 0 {
			return fmt.Errorf("%s has %v: use more than 0", what, *field)
		}
	}
	return nil
}

func (l *Limits) defaults() defaults[int] {
	return defaults[int]{
		&l.Connections: 20_000, &l.ConnectionsOfAddress: 2000, &l.Authentications: 1000, &l.AuthenticationsOfAddress: 600,
		&l.Calls: 20_000, &l.CallsOfCaller: 64, &l.CallsOfConnection: 256,
		&l.Message: 64 << 10, &l.CSR: 32 << 10, &l.Metadata: 8 << 10,
	}
}

func (l *Limits) setDefaults() { l.defaults().set() }
func (l Limits) fault() error  { return l.defaults().fault("Config.Limits") }

func (t *Times) defaults() defaults[time.Duration] {
	return defaults[time.Duration]{
		&t.Handshake: 10 * time.Second, &t.Authenticate: 10 * time.Second, &t.Lookup: 10 * time.Second, &t.Message: 10 * time.Second,
		&t.Hold: 10 * time.Second, &t.Drain: 10 * time.Second,
		&t.PingEvery: 30 * time.Second, &t.PingTimeout: 10 * time.Second, &t.PingAtMost: 10 * time.Second, &t.Idle: 5 * time.Minute,
	}
}

func (t *Times) setDefaults() { t.defaults().set() }
func (t Times) fault() error  { return t.defaults().fault("Config.Times") }
