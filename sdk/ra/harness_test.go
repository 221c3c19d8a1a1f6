package ra_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/ra"
)

// paper is an audit log in memory.
type paper struct {
	mu     sync.Mutex
	text   bytes.Buffer
	synced int
	syncs  int
	fail   error // of Write
	tear   bool  // half of a line is there then
	hang   chan struct{}
}

func (p *paper) Write(text []byte) (int, error) {
	p.mu.Lock()
	hang := p.hang
	p.mu.Unlock()
	if hang != nil {
		<-hang
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		if p.tear {
			n, _ := p.text.Write(text[:len(text)/2])
			return n, p.fail
		}
		return 0, p.fail
	}
	return p.text.Write(text)
}

func (p *paper) Sync() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = p.text.Len()
	p.syncs++
	return nil
}

// hangs has writes wait until the channel is closed.
func (p *paper) hangs() (until chan struct{}) {
	until = make(chan struct{})
	p.set(func() { p.hang = until })
	return until
}

func (p *paper) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *paper) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// lines returns the lines of an event. All that is there must be synced.
func (p *paper) lines(t *testing.T, event string) (found []map[string]any) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.synced != p.text.Len() {
		t.Error("lines are written and not synced")
	}
	for line := range bytes.Lines(p.text.Bytes()) {
		var one map[string]any
		if err := json.Unmarshal(line, &one); err != nil {
			t.Errorf("line %q: %v", line, err)
		}
		if one["event"] == event {
			found = append(found, one)
		}
	}
	return found
}

// house is an engine with all that it needs.
type house struct {
	*ra.Engine
	t      *testing.T
	ca     *office
	paper  *paper
	log    *bytes.Buffer
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
	h := &house{t: t, ca: newOffice(t), paper: &paper{}, log: &bytes.Buffer{}}
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
	engine, err := ra.New(h.config)
	if err != nil {
		h.t.Fatal(err)
	}
	h.Engine = engine
}

func (h *house) results() (all []string) {
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
	der, err := x509.CreateCertificateRequest(rand.Reader, template, keys()[n])
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
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
	return h.Issue(h.t.Context(), req)
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
