package secrets

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errNotSynced = errors.New("the cluster's secrets are not synced")

// data are the entries of a secret.
type data map[string][]byte

// credential is a self-signed certificate with its key, as PEM.
type credential struct {
	cert, key []byte
	signer    crypto.Signer
	parsed    *x509.Certificate
}

func issue(name string, ends time.Time) credential {
	key, err := pki.GenerateKey(pki.ECDSAP256)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: ends.Add(-1000 * time.Hour), NotAfter: ends,
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte{1},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		panic(err)
	}
	return credential{pki.EncodeCertificates([]*x509.Certificate{parsed}), keyPEM, key, parsed}
}

var (
	issuedMu sync.Mutex
	issued   = map[string]credential{}
)

// of returns the credential of that name, the same each time.
func of(name string) credential {
	issuedMu.Lock()
	defer issuedMu.Unlock()
	if _, ok := issued[name]; !ok {
		issued[name] = issue(name, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	return issued[name]
}

func tlsOf(name string) data {
	c := of(name)
	return data{"tls.crt": c.cert, "tls.key": c.key, "ca.crt": of("ca of " + name).cert}
}

func crlOf(name string) []byte {
	c := of(name)
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), NextUpdate: time.Now().Add(time.Hour)}, c.parsed, c.signer)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// cluster is one in memory.
type cluster struct {
	id string

	mu       sync.Mutex
	secrets  map[string]*corev1.Secret
	maps     map[string]*corev1.ConfigMap
	err      error // instead of an object
	versions int
}

func newCluster(id string) *cluster {
	return &cluster{id: id, secrets: map[string]*corev1.Secret{}, maps: map[string]*corev1.ConfigMap{}}
}

func (c *cluster) ID() string { return c.id }

func (c *cluster) meta() metav1.ObjectMeta {
	c.versions++
	return metav1.ObjectMeta{UID: types.UID(c.id), ResourceVersion: fmt.Sprint(c.versions)}
}

// put sets the secret at namespace/name.
func (c *cluster) put(at string, d data) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets[at] = &corev1.Secret{ObjectMeta: c.meta(), Data: d}
}

func (c *cluster) putMap(at string, d map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maps[at] = &corev1.ConfigMap{ObjectMeta: c.meta(), Data: d}
}

func (c *cluster) remove(at string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.secrets, at)
}

func (c *cluster) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *cluster) Secret(namespace, name string) (*corev1.Secret, error) {
	return lookUp(c, c.secrets, namespace, name)
}

func (c *cluster) ConfigMap(namespace, name string) (*corev1.ConfigMap, error) {
	return lookUp(c, c.maps, namespace, name)
}

func lookUp[O any](c *cluster, in map[string]*O, namespace, name string) (*O, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := in[namespace+"/"+name]
	switch {
	case c.err != nil:
		return nil, c.err
	case found == nil:
		return nil, fmt.Errorf("%s/%s: %w", namespace, name, ErrNotFound)
	}
	return found, nil
}

// fleet are the clusters; home is the config cluster.
type fleet struct {
	mu       sync.Mutex
	clusters map[string]*cluster
}

func newFleet(ids ...string) *fleet {
	f := &fleet{clusters: map[string]*cluster{}}
	for _, id := range ids {
		f.clusters[id] = newCluster(id)
	}
	return f
}

func (f *fleet) Cluster(id string) (Cluster, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.clusters[id]
	if c == nil {
		return nil, ok
	}
	return c, ok
}

// off has a cluster that is not connected.
func (f *fleet) off(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters[id] = nil
}

func (f *fleet) Local() Cluster { return f.clusters["home"] }

func (f *fleet) set(id string, c *cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c == nil {
		delete(f.clusters, id)
		return
	}
	f.clusters[id] = c
}

// rights says yes to all but those that it has an answer for.
type rights struct {
	mu        sync.Mutex
	says      map[access.Subject]error
	asked     []access.Subject
	watches   map[access.Subject]int
	forgotten []string
	held      map[string]bool
}

func newRights() *rights {
	return &rights{says: map[access.Subject]error{}, watches: map[access.Subject]int{}, held: map[string]bool{}}
}

func (r *rights) set(s access.Subject, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says[s] = err
}

func (r *rights) Peek(s access.Subject, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, s)
	return r.says[s]
}

func (r *rights) Hold(s access.Subject, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[s.Cluster+"/"+s.ServiceAccount+" "+name] = true
}

func (r *rights) Watch(s access.Subject, _ func()) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches[s]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.watches[s]--
	}
}

func (r *rights) Forget(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgotten = append(r.forgotten, cluster)
}

// caller is one whose service account was verified.
func caller(cluster, namespace, account string) *discovery.Caller {
	return &discovery.Caller{Cluster: cluster, Identity: authn.Identity{
		SPIFFEID:  "spiffe://cluster.local/ns/" + namespace + "/sa/" + account,
		Namespace: namespace, ServiceAccount: account,
	}}
}

// scene is a source with its surroundings: home is the config cluster, east and west
// are others.
type scene struct {
	*Source
	fleet  *fleet
	rights *rights
	log    *logtest.Log
}

func newScene(t testing.TB, change func(*Config)) *scene {
	t.Helper()
	s := &scene{fleet: newFleet("home", "east", "west"), rights: newRights(), log: &logtest.Log{}}
	cfg := Config{Clusters: s.fleet, Access: s.rights, Log: slog.New(slog.NewTextHandler(s.log, nil))}
	if change != nil {
		change(&cfg)
	}
	source, err := New(cfg)
	must(t, err)
	t.Cleanup(source.Close)
	s.Source = source
	return s
}

func (s *scene) at(id string) *cluster { return s.fleet.clusters[id] }

// secret is what Envoy would have.
func (s *scene) secret(t testing.TB, c *discovery.Caller, name string) *tlsv3.Secret {
	t.Helper()
	resource, err := s.Peek(c, name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return decoded(t, resource)
}

func decoded(t testing.TB, resource *xds.Resource) *tlsv3.Secret {
	t.Helper()
	var secret tlsv3.Secret
	must(t, resource.Body.UnmarshalTo(&secret))
	if err := secret.ValidateAll(); err != nil {
		t.Error(err)
	}
	if secret.Name != resource.Name {
		t.Errorf("%q is sent as %q", secret.Name, resource.Name)
	}
	return &secret
}

// had says in one word what a caller has of a name: the common name of the certificate
// ("key of …") or of the CA ("ca of …"), else why it has nothing.
func (s *scene) had(t testing.TB, c *discovery.Caller, name string) string {
	t.Helper()
	before := s.Counts().Refused
	resource, err := s.Peek(c, name)
	switch {
	case errors.Is(err, xds.ErrNotReady):
		return "not ready"
	case errors.Is(err, xds.ErrUnknown):
		for reason, n := range s.Counts().Refused {
			if n != before[reason] {
				return string(reason)
			}
		}
		return "refused and not counted"
	case err != nil:
		return err.Error()
	}
	secret := decoded(t, resource)
	if context := secret.GetValidationContext(); context != nil {
		if strings.Contains(resource.Body.String(), "PRIVATE KEY") {
			t.Errorf("%s: a key in a CA", name)
		}
		return "CA " + commonName(t, context.GetTrustedCa().GetInlineBytes())
	}
	pair := secret.GetTlsCertificate()
	who := commonName(t, pair.GetCertificateChain().GetInlineBytes())
	if !bytes.Equal(pair.GetPrivateKey().GetInlineBytes(), of(who).key) {
		t.Errorf("%s: the key is not that of %q", name, who)
	}
	return "key " + who
}

func commonName(t testing.TB, text []byte) string {
	t.Helper()
	certs, err := pki.ParseCertificates(text)
	must(t, err)
	return certs[0].Subject.CommonName
}

// selfSigned returns a certificate of the key, as PEM.
func selfSigned(key crypto.Signer) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// origin returns the common name of the certificate in a marshalled secret.
func origin(body []byte) string {
	var secret tlsv3.Secret
	if err := proto.Unmarshal(body, &secret); err != nil {
		panic(err)
	}
	text := secret.GetTlsCertificate().GetCertificateChain().GetInlineBytes()
	if context := secret.GetValidationContext(); context != nil {
		text = context.GetTrustedCa().GetInlineBytes()
	}
	certs, err := pki.ParseCertificates(text)
	if err != nil {
		panic(err)
	}
	return certs[0].Subject.CommonName
}
