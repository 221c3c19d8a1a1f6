package program

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// waits has an engine with a request that its CA has not answered, and what ends that.
func waits(t *testing.T, audit ra.Sink) (e *ra.Engine, answer func()) {
	t.Helper()
	asked, hold := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	authority := ratest.NewCA(t)
	authority.Before = func(context.Context, ca.SignRequest) error {
		if once.CompareAndSwap(false, true) {
			close(asked)
		}
		<-hold
		return nil
	}
	policy, err := ra.NewPolicy("home", []ra.Rule{{Name: "all", Authority: "file", Names: ra.Names{SPIFFEID: "spiffe://example.org/{user}"}}})
	if err != nil {
		t.Fatal(err)
	}
	e, err = ra.New(ra.Config{Policy: policy, Doors: []ra.Door{{Name: "istio"}}, Audit: audit, Authorities: []ra.Authority{{Name: "file", Client: authority}}})
	if err != nil {
		t.Fatal(err)
	}
	id := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/jane"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = ra.Certify(context.Background(), e, ra.Request{
			Subject: ra.Subject{Kind: ra.User, Cluster: "home", User: "jane"}, Door: "istio",
			CSR: ratest.CSR(pki.ECDSAP256, &x509.CertificateRequest{URIs: []*url.URL{id}}),
		})
	}()
	<-asked
	return e, func() { close(hold); <-done }
}

// A provider that crashes is started again for the requests that wait, of either engine.
func TestProviderIsDueWhileRequestsWait(t *testing.T) {
	t.Parallel()
	e, answer := waits(t, ratest.NoAudit)
	defer e.Close()
	leads, serves := &service{}, &service{door: &door{}}
	if _, due := serves.due("file"); due {
		t.Error("due before the door is open")
	}
	leads.session.Store(&leaderSession{engine: e})
	serves.door.engine.Store(e)
	for what, s := range map[string]*service{"the leader": leads, "the door": serves} {
		if end, due := s.due("file"); !due || !end.IsZero() {
			t.Errorf("%s: %v, %s", what, due, end)
		}
		if _, due := s.due("other"); due {
			t.Errorf("%s: another provider is due", what)
		}
	}
	answer()
	if _, due := leads.due("file"); due {
		t.Error("due with nothing to do")
	}
}

func TestReplicaIsNotReadyWhileItCannotAudit(t *testing.T) {
	t.Parallel()
	full := &ratest.Audit{Err: errors.New("no space left on device")}
	e, answer := waits(t, full)
	defer e.Close()
	answer()
	leads, serves := &service{}, &service{door: &door{}}
	leads.session.Store(&leaderSession{engine: e})
	serves.door.engine.Store(e)
	for what, err := range map[string]error{
		"the leader signs": leads.signs(), "the leader": leads.auditFault(), "the door serves": serves.door.ready(), "the door": serves.auditFault(),
	} {
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
