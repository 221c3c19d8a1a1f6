package trustbundle_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typed "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	signer = "example.com/pods"
	object = "example.com:pods:bundle"
)

var errAway = errors.New("connection refused")

// server is an API server that a test can have fail, hang, or change what is written.
type server struct {
	kubernetes.Interface

	mu       sync.Mutex
	err      error
	writeErr error // of writes alone
	hang     bool
	alter    func(*certificatesv1.ClusterTrustBundle) // before it is stored
	after    func(*certificatesv1.ClusterTrustBundle) // once it is
	gets     int
	writes   int
}

// IsWatchListSemanticsUnSupported tells client-go that the fake has no streaming lists.
func (s *server) IsWatchListSemanticsUnSupported() bool { return true }

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) counts() (gets, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets, s.writes
}

func (s *server) CertificatesV1() typed.CertificatesV1Interface {
	return certificates{s.Interface.CertificatesV1(), s}
}

type certificates struct {
	typed.CertificatesV1Interface
	server *server
}

func (c certificates) ClusterTrustBundles() typed.ClusterTrustBundleInterface {
	return bundles{c.CertificatesV1Interface.ClusterTrustBundles(), c.server}
}

type bundles struct {
	typed.ClusterTrustBundleInterface
	server *server
}

func (b bundles) begin(ctx context.Context, count *int) error {
	b.server.mu.Lock()
	*count++
	err, hang := b.server.err, b.server.hang
	b.server.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (b bundles) Get(ctx context.Context, name string, o metav1.GetOptions) (*certificatesv1.ClusterTrustBundle, error) {
	if err := b.begin(ctx, &b.server.gets); err != nil {
		return nil, err
	}
	return b.ClusterTrustBundleInterface.Get(ctx, name, o)
}

func (b bundles) Create(ctx context.Context, o *certificatesv1.ClusterTrustBundle, options metav1.CreateOptions) (*certificatesv1.ClusterTrustBundle, error) {
	return b.write(ctx, o, func(o *certificatesv1.ClusterTrustBundle) (*certificatesv1.ClusterTrustBundle, error) {
		return b.ClusterTrustBundleInterface.Create(ctx, o, options)
	})
}

func (b bundles) Update(ctx context.Context, o *certificatesv1.ClusterTrustBundle, options metav1.UpdateOptions) (*certificatesv1.ClusterTrustBundle, error) {
	return b.write(ctx, o, func(o *certificatesv1.ClusterTrustBundle) (*certificatesv1.ClusterTrustBundle, error) {
		return b.ClusterTrustBundleInterface.Update(ctx, o, options)
	})
}

func (b bundles) write(ctx context.Context, o *certificatesv1.ClusterTrustBundle, store func(*certificatesv1.ClusterTrustBundle) (*certificatesv1.ClusterTrustBundle, error)) (*certificatesv1.ClusterTrustBundle, error) {
	if err := b.begin(ctx, &b.server.writes); err != nil {
		return nil, err
	}
	b.server.mu.Lock()
	alter, after, refused := b.server.alter, b.server.after, b.server.writeErr
	b.server.mu.Unlock()
	if refused != nil {
		return nil, refused
	}
	if alter != nil {
		alter(o)
	}
	made, err := store(o)
	if err == nil && after != nil {
		after(made.DeepCopy())
	}
	return made, err
}

// desk is a door with all that it needs.
type desk struct {
	*trustbundle.Door
	t      *testing.T
	server *server
	log    logtest.Log

	mu      sync.Mutex
	roots   map[string]*pki.Bundle
	written map[string]*pki.Bundle
	heard   []*pki.Bundle // all that was told
	stop    context.CancelFunc
	done    chan struct{}
}

// inBubble runs a test with a door for the signer, with a clock of its own.
func inBubble(t *testing.T, change func(*trustbundle.Config), test func(d *desk), objects ...*certificatesv1.ClusterTrustBundle) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{t: t, server: &server{Interface: fake.NewClientset()}, roots: map[string]*pki.Bundle{}, written: map[string]*pki.Bundle{}}
		for _, o := range objects {
			d.put(o)
		}
		cfg := trustbundle.Config{
			Cluster: "home", Client: d.server, Bundles: []trustbundle.Bundle{{Signer: signer, Authority: "ca"}}, Log: d.log.Logger(),
			Roots: func(authority string) *pki.Bundle { d.mu.Lock(); defer d.mu.Unlock(); return d.roots[authority] },
			Written: func(authority string, roots *pki.Bundle) {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.written[authority] = roots
				d.heard = append(d.heard, roots)
			},
		}
		if change != nil {
			change(&cfg)
		}
		door, err := trustbundle.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		d.Door = door
		defer func() {
			if d.stop != nil {
				d.end()
			}
		}()
		test(d)
	})
}

func (d *desk) start() {
	ctx, cancel := context.WithCancel(d.t.Context())
	d.stop, d.done = cancel, make(chan struct{})
	go func() { defer close(d.done); d.Run(ctx) }()
	d.pass(3 * time.Second)
}

func (d *desk) end() {
	d.stop()
	<-d.done
	d.stop = nil
}

func (d *desk) pass(by time.Duration) {
	time.Sleep(by)
	synctest.Wait()
}

// has the authority have those roots.
func (d *desk) has(authority string, roots *pki.Bundle) {
	d.mu.Lock()
	d.roots[authority] = roots
	d.mu.Unlock()
	d.Changed(authority, roots)
}

func (d *desk) confirmed(authority string) *pki.Bundle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written[authority]
}

// forget forgets what was confirmed.
func (d *desk) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.written)
}

// api reaches the objects past the test's faults.
func (d *desk) api() typed.ClusterTrustBundleInterface {
	return d.server.Interface.CertificatesV1().ClusterTrustBundles()
}

func (d *desk) put(o *certificatesv1.ClusterTrustBundle) {
	d.t.Helper()
	_, err := d.api().Update(d.t.Context(), o, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = d.api().Create(d.t.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) get(name string) *certificatesv1.ClusterTrustBundle {
	d.t.Helper()
	o, err := d.api().Get(d.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return o
}

// holds demands that the signer's object is as it should be.
func (d *desk) holds(roots *pki.Bundle) {
	d.t.Helper()
	o := d.get(object)
	if o.Spec.TrustBundle != string(roots.PEM()) || o.Spec.SignerName != signer || o.Labels[trustbundle.ManagedBy] != trustbundle.Manager {
		d.t.Fatalf("the object is %+v\n%s", o, &d.log)
	}
	if err := d.Ready(); err != nil {
		d.t.Fatalf("not ready: %v", err)
	}
}

func (d *desk) lines(text string) int { return strings.Count(d.log.String(), text) }

func foreign(labels map[string]string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: object, UID: "foreign", Labels: labels},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: "theirs"},
	}
}

// some roots that differ.
func some(t *testing.T, n int) (each []*pki.Bundle, all *pki.Bundle) {
	t.Helper()
	for range n {
		each = append(each, pki.NewBundle(certtest.Root(t).Cert))
	}
	for _, one := range each {
		all = all.Union(one)
	}
	return each, all
}

// huge is a bundle over the API server's limit.
func huge(t *testing.T) *pki.Bundle {
	t.Helper()
	var certs []*x509.Certificate
	for range 12 {
		certs = append(certs, certtest.SelfSigned(t, &x509.Certificate{
			Subject: pkix.Name{CommonName: "huge"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
			ExtraExtensions: []pkix.Extension{{Id: []int{1, 2, 3}, Value: slices.Repeat([]byte{1}, 70<<10)}},
		}).Cert)
	}
	return pki.NewBundle(certs...)
}
