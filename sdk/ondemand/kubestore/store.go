// Package kubestore (experimental) is a storage that the agents behind one name share, in the API
// server of a Kubernetes cluster: an ondemand.SharedStorage. Each certificate is a Secret, and a
// Lease keeps two agents from ordering one name at once. It uses plain HTTPS and links no
// Kubernetes package.
//
// Records are plain: Kubernetes' rights guard the keys in them, and etcd's encryption if the cluster
// has it. The caller verifies each record that it loads, so a changed one is not served. A client
// that can write Secrets in the namespace can still plant the key of an order that is in flight.
package kubestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/recent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// Type is the type of the Secrets.
	Type = "countersign.dev/certificate"

	managedBy = "app.kubernetes.io/managed-by"
	manager   = "countersign"
	// kindLabel has the kind of an object, since a list of metadata lacks the type.
	kindLabel  = "countersign.dev/kind"
	kindRecord = "certificate"
	kindCopy   = "tls-copy"
	kindClaim  = "claim"

	nameNote  = "countersign.dev/name"
	renewNote = "countersign.dev/renew"
	endsNote  = "countersign.dev/ends"
	claimNote = "countersign.dev/claim"

	// tries is how often a write is repeated that met a change of the same object.
	tries = 3
	// mostObserved is how many claims of others are observed at most.
	mostObserved = 10_000
)

// Config is where the records are.
type Config struct {
	// API is the access to the API server. Required.
	API kubeapi.Config
	// Namespace has the records and the claims, and should have nothing else. Required.
	Namespace string
	// TLSSecrets keeps a copy of each certificate as a Secret of type kubernetes.io/tls with the
	// name of the certificate, for ingress controllers. Default: false.
	TLSSecrets bool
	// Identity begins the holder of this process's claims, such as the name of the machine, for
	// operators. Default: none.
	Identity string
	// Log gets warnings. Default: slog.Default.
	Log *slog.Logger
}

var namespace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })

// Store is an ondemand.SharedStorage. It is safe for concurrent use.
type Store struct {
	cfg    Config
	client *kubeapi.Client
	log    *slog.Logger
	holder string // of our claims; no other process has it
	view   view
	copies copies

	foreign, damaged atomic.Int64

	mu       sync.Mutex
	claims   map[string]*claim // ours, by name
	observed recent.Map[string, observation]
}

// Open checks the settings; it reads and sends nothing.
func Open(cfg Config) (*Store, error) {
	if !namespace().MatchString(cfg.Namespace) {
		return nil, ca.Errorf(ca.Invalid, "namespace is %.256q: want the name of one", cfg.Namespace)
	}
	client, err := kubeapi.New(cfg.API)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "%w", err)
	}
	return &Store{
		cfg: cfg, client: client, log: loglimit.Limit(cmp.Or(cfg.Log, slog.Default())), holder: cfg.Identity + "_" + rand.Text(),
		view: view{known: map[string]kept{}, follows: make(chan struct{}, 1)}, copies: newCopies(), claims: map[string]*claim{}, observed: recent.New[string, observation](mostObserved),
	}, nil
}

// Close closes idle connections.
func (s *Store) Close() { s.client.Close() }

// Status counts what the store has found in its namespace. It does not change an object of another
// client.
func (s *Store) Status() secret.StorageStatus {
	return secret.StorageStatus{Foreign: s.foreign.Load(), Damaged: s.damaged.Load()}
}

// objectName is where the record of a name is. It has more than the 63 bytes of a DNS label, so that
// no client can ask for a name whose copy would be in its place.
func objectName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "countersign-" + hex.EncodeToString(sum[:])
}

func (s *Store) secrets() string { return "/api/v1/namespaces/" + s.cfg.Namespace + "/secrets" }

func (s *Store) leases() string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + s.cfg.Namespace + "/leases"
}

// errForeign means that another client has made an object in our place.
var errForeign = ca.Errorf(ca.Denied, "an object of that name is there and is not ours: move it to another namespace")

func (s *Store) isForeign(what string, o object) error {
	s.foreign.Add(1)
	s.log.Warn("the namespace of the certificates has an object of another client, which is left as it is", "kind", what, "object", o.Metadata.Name)
	return errForeign
}

// get reads an object. It returns nil if there is none.
func (s *Store) get(ctx context.Context, at string) (*object, error) {
	var found object
	err := s.client.Do(ctx, kubeapi.Call{Path: at}, &found)
	if kubeapi.Answered(err, http.StatusNotFound) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, unknown(err)
	}
	return &found, nil
}

// put creates an object, or replaces the version of it that has a resourceVersion.
func (s *Store) put(ctx context.Context, collection string, o object) (stored object, err error) {
	call := kubeapi.Call{Method: http.MethodPost, Path: collection, Body: o}
	if o.Metadata.ResourceVersion != "" {
		call.Method, call.Path = http.MethodPut, collection+"/"+o.Metadata.Name
	}
	err = s.client.Do(ctx, call, &stored)
	return stored, err
}

// raced reports whether a write met another client's: it created, changed or deleted the object.
func raced(err error) bool {
	return kubeapi.Answered(err, http.StatusConflict) || kubeapi.Answered(err, http.StatusNotFound)
}

// unknown returns the error of a call that failed for a reason of the API server or of our rights,
// whatever the record is.
func unknown(err error) error {
	if err == nil {
		return nil
	}
	if reason := ca.ReasonFor(err); reason == ca.Deadline || reason == ca.Canceled {
		return err
	}
	failed := ca.Errorf(ca.Unavailable, "%w", err)
	failed.RetryAfter = ca.RetryAfter(err)
	return failed
}

var (
	errRaced = ca.Errorf(ca.Unavailable, "another client keeps changing the object")
	errLost  = ca.Errorf(ca.Unavailable, "the claim could not be kept, so that another process may have the name by now")
)

// stamp is how notes and Leases write a time.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func isForeign(err error) bool { return errors.Is(err, errForeign) }
