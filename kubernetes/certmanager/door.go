// Package certmanager is an external issuer for cert-manager in front of every provider: it signs
// the CertificateRequests that name a CountersignIssuer or a CountersignClusterIssuer (package
// v1alpha1) with the authorities of a registration authority. Make a [Door] with [New] and call
// [Door.Run].
//
// Approval is not authorization: cert-manager approves every request by default. The policy
// decides. Its subject is the namespace of the request, as nothing else about it is verified, and
// the names must be those that the matching rule gives or allows. An issuer only chooses among the
// authorities that the operator opens to it ([Authority]).
//
//	informer ──▶ signing.Work ──▶ issuer-lib: issuer ready? ──▶ judge ──▶ Issue ──▶ status.certificate
//	                 ▲                                           │         │
//	                 └───────────────── pending ◀────────────────┴─────────┴──▶ Failed, or issuer not Ready
//
// Rights: get, list and watch certificaterequests (cert-manager.io) and the issuers, patch the
// status of each, and create and patch events (events.k8s.io).
package certmanager

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	issuerapi "github.com/cert-manager/issuer-lib/api/v1alpha1"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/certmanager/v1alpha1"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
)

// Config configures a [Door]. Its Issuer has the door [EngineDoor] of each authority, and its events name
// the authority as their signer.
type Config struct {
	signing.Config
	// Authorities are those that issuers may name. Default: none.
	Authorities []Authority
}

// Authority lists the issuers that may use an authority.
type Authority struct {
	// Name is the name of the authority, and of its rules' Authority.
	Name string
	// ClusterIssuers lets each CountersignClusterIssuer use it. Default: false.
	ClusterIssuers bool
	// Namespaces are those whose CountersignIssuers may use it: names, or patterns with one '*'.
	// Default: none.
	Namespaces []string
}

// Door signs the requests of one cluster.
type Door struct {
	cfg         Config
	authorities map[string]Authority
	gates       signing.Gates // by authority
	synced      atomic.Pointer[error]
}

// New checks the settings. It asks the API server nothing before Run.
func New(cfg Config) (*Door, error) {
	var err error
	if cfg.Config, err = cfg.Checked(); err != nil {
		return nil, fmt.Errorf("certmanager: %w", err)
	}
	d := &Door{cfg: cfg, authorities: map[string]Authority{}, gates: signing.Gates{}}
	for _, a := range cfg.Authorities {
		if _, twice := d.authorities[a.Name]; a.Name == "" || twice {
			return nil, fmt.Errorf("certmanager: the authority %q has no name or is there twice", a.Name)
		}
		d.authorities[a.Name], d.gates[a.Name] = a, signing.NewGate()
	}
	d.is(errStarting)
	return d, nil
}

// EngineDoor returns the engine's door for an authority. It has one for each, so that a rule is
// for the issuers of the authority that signs for it, and for no others. A request for less than a
// minute gets a minute.
func EngineDoor(authority string) ra.Door {
	return ra.Door{Name: "cert-manager/" + authority, LeastTTL: time.Minute}
}

var errStarting = errors.New("the requests of cert-manager are not known yet")

// is sets what Ready returns.
func (d *Door) is(err error) { d.synced.Store(&err) }

// Ready returns nil while the door runs and has seen all requests that there were when it began.
func (d *Door) Ready() error { return *d.synced.Load() }

// Shut returns the authorities of which no certificates are requested, as they could not be written.
func (d *Door) Shut() []signing.Shut { return d.gates.Shut() }

// authorityOf returns the authority that an issuer names, if it may. The error is the same for an
// authority of others and one that does not exist.
func (d *Door) authorityOf(issuer issuerapi.Issuer) (name string, err error) {
	switch i := issuer.(type) {
	case *v1alpha1.CountersignIssuer:
		name = i.Spec.Authority
		if a, known := d.authorities[name]; !known || !a.lists(i.Namespace) {
			return "", fmt.Errorf("spec.authority is %s: countersign-ra lets the issuers of namespace %s use no authority of that name (cert_manager.authorities, namespaces)", text.Quote(name), text.Quote(i.Namespace))
		}
	case *v1alpha1.CountersignClusterIssuer:
		name = i.Spec.Authority
		if a, known := d.authorities[name]; !known || !a.ClusterIssuers {
			return "", fmt.Errorf("spec.authority is %s: countersign-ra lets cluster issuers use no authority of that name (cert_manager.authorities, cluster_issuers)", text.Quote(name))
		}
	default:
		return "", fmt.Errorf("unsupported issuer kind %T", issuer)
	}
	return name, nil
}

func (a Authority) lists(namespace string) bool {
	for _, pattern := range a.Namespaces {
		before, after, wild := strings.Cut(pattern, "*")
		if pattern == namespace || wild && len(namespace) >= len(before)+len(after) &&
			strings.HasPrefix(namespace, before) && strings.HasSuffix(namespace, after) {
			return true
		}
	}
	return false
}
