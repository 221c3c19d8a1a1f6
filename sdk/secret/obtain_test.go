package secret_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestObtainHoldsOneCertificateAndItsRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := secret.Obtain(t.Context(), catest.NewCA(catest.Options{}), "spiffe://example.org/web", "web.example.org", "192.0.2.1", "2001:db8::1")
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := secret.Ready(t.Context(), m, "default", "ROOTCA"); err != nil {
			t.Fatal(err)
		}
		first, err := m.Peek(secret.Caller{}, "default")
		if err != nil {
			t.Fatal(err)
		}
		if id := first.Identity; id.SPIFFEID.String() != "spiffe://example.org/web" || len(id.DNSNames) != 1 || len(id.IPAddresses) != 2 {
			t.Errorf("got a certificate for %s", id)
		}
		time.Sleep(time.Until(first.RenewAt) + time.Minute)
		if second, err := m.Peek(secret.Caller{}, "default"); err != nil || second.Version == first.Version {
			t.Errorf("it was not renewed: %v, %v", second, err)
		}
	})
}

// refusing is a CA that signs nothing.
type refusing struct{}

func (refusing) CSRSign(context.Context, ca.SignRequest) (ca.Certificate, error) {
	return ca.Certificate{}, ca.Errorf(ca.Denied, "not for you")
}

func TestObtainReturnsReasonOfLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m, err := secret.Obtain(ctx, refusing{}, "web.example.org")
		if m != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not for you") {
			t.Errorf("%v, %v", m, err)
		}
	}) // which fails if a goroutine is left
	for want, names := range map[string][]string{"one SPIFFE ID": {"spiffe://a/b", "spiffe://a/c"}, "a_b!": {"a_b!"}} {
		if _, err := secret.Obtain(t.Context(), refusing{}, names...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
}
