package bench

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	manyIdentities = 10_000
	identityRounds = 5
	identityTTL    = 24 * time.Hour
)

// identities measures one agent's engine with many identities, against an authority in
// the same process, and beside it, in turns, what the same certificates cost bare.
func (b *bench) identities() error {
	m, err := newMany()
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.populate(); err != nil {
		return err
	}
	var whole, bare, checks []time.Duration
	for range identityRounds {
		rotation, err := m.rotate()
		if err != nil {
			return err
		}
		least, check, err := m.bare()
		if err != nil {
			return err
		}
		whole, bare, checks = append(whole, rotation), append(bare, least), append(checks, check)
	}
	m.report(median(whole), median(bare), median(checks))
	return nil
}

// many is the engine, with the authority's side of it.
type many struct {
	*localCA
	manager *secret.Manager
	set     *identities.Set
	served  atomic.Int64
	memory  float64 // for an identity, in KiB
	pem     float64 // of that, certificates and keys as they are served
}

func newMany() (*many, error) {
	authority, err := newLocalCA()
	if err != nil {
		return nil, err
	}
	m := &many{localCA: authority}
	m.manager, err = secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "local", Client: authority}},
		Secrets:     []secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"local"}}},
		Now:         authority.now,
	})
	if err != nil {
		return nil, err
	}
	claimed := func(token ca.Token) (identities.Claim, error) {
		return identities.Claim{SPIFFEID: "spiffe://example.org/ns/shop/sa/" + token.Reveal()}, nil
	}
	m.set, err = identities.New(identities.Config{
		Manager: m.manager, Certificate: secret.Spec{Authorities: []string{"local"}, TTL: identityTTL},
		Identify: identities.Identify{Claimed: claimed}, Limits: identities.Limits{Identities: 2 * manyIdentities}, Now: authority.now,
		Observe: func(e secret.Event) {
			if e.Kind == secret.Rotated {
				m.served.Add(1)
			}
		},
	})
	return m, err
}

func (m *many) close() {
	_ = m.set.Close()
	_ = m.manager.Close()
}

// populate has one stream of each identity join, and measures what they hold on to.
func (m *many) populate() error {
	before := heap()
	callers := make([]secret.Caller, manyIdentities)
	for i := range manyIdentities {
		caller, err := m.set.Join(context.Background(), secret.Caller{ID: "uid:1000", UID: 1000}, ca.Token(fmt.Sprintf("workload-%05d", i)))
		if err != nil {
			return err
		}
		callers[i] = caller
	}
	if err := m.until(manyIdentities); err != nil {
		return err
	}
	m.memory = float64(heap()-before) / manyIdentities / 1024
	var size int
	for _, caller := range callers {
		item, err := m.set.Peek(caller, "default")
		if err != nil {
			return err
		}
		size += len(item.Chain) + len(item.Key)
	}
	m.pem = float64(size) / manyIdentities / 1024
	return nil
}

// heap returns the bytes in use, stacks included, after the garbage is gone.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

// until waits for so many certificates to have been served.
func (m *many) until(rotations int64) error {
	for end := time.Now().Add(5 * time.Minute); m.served.Load() < rotations; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d certificates are there after five minutes", m.served.Load(), rotations)
		}
	}
	return nil
}

// rotate moves the clock until all certificates are due, and returns the CPU time that
// it took to replace them.
func (m *many) rotate() (time.Duration, error) {
	runtime.GC()
	wanted := m.served.Load() + manyIdentities
	begin := cpuTime()
	m.ahead.Add(int64(identityTTL * 7 / 10))
	m.set.Kick()
	err := m.until(wanted)
	return cpuTime() - begin, err
}

// bare does what no rotation can do without, for as many identities, as the standard
// library does it: keys, requests, the authority's signatures, reading the certificates.
// check is what the checks of a reply cost that the engine makes besides.
func (m *many) bare() (least, check time.Duration, err error) {
	runtime.GC()
	replies := make([]ca.Certificate, manyIdentities)
	keys := make([]any, manyIdentities)
	id, err := pki.NewIdentity("spiffe://example.org/ns/shop/sa/workload-00000", nil, nil)
	if err != nil {
		return 0, 0, err
	}
	begin := cpuTime()
	err = atOnce(func(i int) error {
		key, err := pki.GenerateKey(pki.ECDSAP256)
		if err != nil {
			return err
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{id.SPIFFEID}}, key)
		if err != nil {
			return err
		}
		csr := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		keys[i] = key.Public()
		if replies[i], err = m.CSRSign(context.Background(), ca.SignRequest{CSR: csr, TTL: identityTTL}); err != nil {
			return err
		}
		_, err = pki.ParseCertificates(replies[i].Chain)
		return err
	})
	least = cpuTime() - begin
	if err != nil {
		return 0, 0, err
	}
	runtime.GC()
	begin = cpuTime()
	err = atOnce(func(i int) error {
		_, err := pki.Check{Key: keys[i], Identity: id, Roots: m.roots, Now: m.now()}.Chain(replies[i].Chain)
		return err
	})
	return least, cpuTime() - begin, err
}

// atOnce calls f for each identity, on all cores.
func atOnce(f func(i int) error) error {
	var next atomic.Int64
	failed := make([]error, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for w := range failed {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < manyIdentities && failed[w] == nil; i = int(next.Add(1)) - 1 {
				failed[w] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// cpuTime returns what this process has used.
func cpuTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // cannot fail for itself
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (m *many) report(whole, bare, checks time.Duration) {
	each := func(d time.Duration) string { return us(d / manyIdentities) }
	n := m.set.Counts()
	fmt.Printf("\n| one agent, %d identities with ECDSA keys, authority in the same process | median |\n|---|---|\n", manyIdentities)
	row("memory for an identity and its stream's session", fmt.Sprintf("%.1f KiB", m.memory))
	row("of that beside its certificate and key", fmt.Sprintf("%.1f KiB", m.memory-m.pem))
	row("CPU of a rotation, for each identity", each(whole))
	row("bare: key, request, the authority's signature, reading", each(bare))
	row("the checks of a reply, which are not in the bare cost (reading included)", each(checks))
	row("rotation : bare", fmt.Sprintf("%.2f", float64(whole)/float64(bare)))
	row("requests for each certificate served", fmt.Sprintf("%.4f", float64(m.asked.Load()-int64(identityRounds*manyIdentities))/float64(n.Rotations)))
	row("joins", strconv.Itoa(n.Joins))
}

// localCA signs whatever it is asked for, and remembers nothing of it.
type localCA struct {
	cert  *x509.Certificate
	key   any
	roots *pki.Bundle
	pem   []byte
	ahead atomic.Int64 // of the clock
	asked atomic.Int64
}

func newLocalCA() (*localCA, error) {
	key, err := pki.GenerateKey(pki.ECDSAP256)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	roots := pki.NewBundle(cert)
	return &localCA{cert: cert, key: key, roots: roots, pem: roots.PEM()}, nil
}

func (c *localCA) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// CSRSign implements [ca.Client].
func (c *localCA) CSRSign(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
	c.asked.Add(1)
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "%w", err)
	}
	leaf := &x509.Certificate{
		URIs: csr.URIs, KeyUsage: x509.KeyUsageDigitalSignature, NotBefore: c.now().Add(-2 * time.Minute), NotAfter: c.now().Add(req.TTL),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, c.cert, csr.PublicKey, c.key)
	if err != nil {
		return ca.Certificate{}, err
	}
	return ca.Certificate{Chain: pki.EncodeCertificates([]*x509.Certificate{{Raw: der}}), Roots: c.pem}, nil
}
