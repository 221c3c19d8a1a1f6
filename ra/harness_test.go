package ra_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// house is an engine with all that it needs.
type house struct {
	*ra.Engine
	t      *testing.T
	ca     *ratest.CA
	paper  *ratest.Audit
	log    *logtest.Log
	events []ra.Event
	mu     sync.Mutex
	config ra.Config
	pods   int
}

const kubelet, istio = "kubelet", "istio"

// newHouse returns an engine with one authority, "ca", a door for CSRs without names and
// strict times, and one for others. Its roots are known.
func newHouse(t *testing.T, change func(*ra.Config)) *house {
	t.Helper()
	h := &house{t: t, ca: ratest.NewCA(t), paper: &ratest.Audit{}, log: &logtest.Log{}}
	h.config = ra.Config{
		Policy: policy(t, mesh()), Audit: h.paper, Log: slog.New(slog.NewTextHandler(h.log, nil)),
		Doors: []ra.Door{
			{Name: kubelet, NoNames: true, MinLifetime: time.Hour, MaxLifetime: 91 * 24 * time.Hour, MaxBackdating: 5 * time.Minute},
			{Name: istio},
		},
		Authorities: []ra.Authority{{Name: "ca", Client: h.ca, Limits: ra.Limits{Rate: 1000, Burst: 1000}}},
		Observe: func(e ra.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
		},
	}
	if change != nil {
		change(&h.config)
	}
	h.open()
	return h
}

// open starts an engine with the same authority and log, as after a restart.
func (h *house) open() {
	h.t.Helper()
	h.Engine = ratest.Engine(h.t, h.config)
}

// results are the outcomes once all is quiet: a caller has its answer before one is observed.
func (h *house) results() (all []string) {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		all = append(all, e.Result)
	}
	return all
}

var keys = sync.OnceValue(func() (list []crypto.Signer) {
	for range 20 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		list = append(list, key)
	}
	return list
})

// csr is one with the key of that number.
func csr(n int, template *x509.CertificateRequest) []byte {
	return ratest.CSRWith(keys()[n], template)
}

// empty is the CSR of a kubelet with the key of that number.
func empty(n int) []byte { return empties()[n] }

var empties = sync.OnceValue(func() (list [][]byte) {
	for n := range keys() {
		list = append(list, csr(n, &x509.CertificateRequest{}))
	}
	return list
})

func request() ra.Request {
	return ra.Request{Subject: web(), Door: kubelet, CSR: empty(0), TTL: 24 * time.Hour}
}

func (h *house) issue(req ra.Request) (ra.Certificate, error) {
	return ra.Certify(h.t.Context(), h, req)
}

func (h *house) must(req ra.Request) ra.Certificate {
	h.t.Helper()
	cert, err := h.issue(req)
	if err != nil {
		h.t.Fatal(err)
	}
	return cert
}

// refused demands an error of that reason.
func (h *house) refused(req ra.Request, reason *ca.Error) error {
	h.t.Helper()
	cert, err := h.issue(req)
	if !errors.Is(err, reason) || cert.Chain != nil {
		h.t.Fatalf("got %v, want %v", err, reason)
	}
	return err
}
