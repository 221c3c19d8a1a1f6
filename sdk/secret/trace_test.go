package secret_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/countersign-dev/countersign/internal/test/tracetest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// inspected is a client that looks at what it is asked with.
type inspected struct {
	ca.Client
	sign func(context.Context) error
}

func (a inspected) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if err := a.sign(ctx); err != nil {
		return ca.Certificate{}, err
	}
	return a.Client.CSRSign(ctx, req)
}

func TestEachAttemptIsATrace(t *testing.T) {
	const token = "sesame-open-sesame-open"
	synctest.Test(t, func(t *testing.T) {
		tracer := &tracetest.Tracer{}
		away := true
		var parents []string
		e := newEngine(t, func(c *secret.Config) {
			c.Tracer = tracer
			c.Authorities[0].Token = func(context.Context) (ca.Bearer, error) { return ca.Bearer{Token: token}, nil }
			client(func(by *catest.CA) ca.Client {
				return inspected{by, func(ctx context.Context) error {
					parents = append(parents, trace.Parent(ctx))
					if away {
						away = false
						return ca.Errorf(ca.Unavailable, "no answer for %s", token)
					}
					return nil
				}}
			})(c)
		})
		after(ttl / 100)
		e.held("default")
		e.untilRenewal(0)
		after(ttl / 100)
		all, signs := tracer.All(t, "certificate.issue"), tracer.All(t, "sign")
		if len(all) != 3 || len(signs) != 3 || len(tracer.All(t, "token")) != 3 || len(tracer.All(t, "key")) != 2 {
			t.Fatalf("%+v\n%+v", all, signs)
		}
		for i, want := range []map[string]string{
			{"reason": "nothing held", "attempt": "1"}, {"reason": "nothing held", "attempt": "2"}, {"reason": "renewal", "attempt": "1"},
		} {
			got, sign := all[i], signs[i]
			if got.Attrs["countersign.reason"] != want["reason"] || got.Attrs["countersign.attempt"] != want["attempt"] || got.Above != nil ||
				got.Attrs["countersign.secret"] != "default" || got.Attrs["countersign.identity"] != "spiffe://example.org/web" || got.Attrs["countersign.authority"] != "test" {
				t.Errorf("%d: %+v", i, got)
			}
			if sign.Above == nil || sign.Above.Parent() != got.Parent() || parents[i] != sign.Parent() {
				t.Errorf("%d: the authority was asked in %q, not below %+v", i, parents[i], got)
			}
			if failed := i == 0; (got.Failed != "") != failed || (sign.Failed != "") != failed || (got.Attrs["countersign.serial"] == "") != failed || strings.Contains(got.Failed+sign.Failed, "sesame") {
				t.Errorf("%d: %q, %q, %v", i, got.Failed, sign.Failed, got.Attrs)
			}
		}
	})
}

func TestSignerTracesItsOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := &tracetest.Tracer{}
		e := newEngine(t, func(c *secret.Config) { c.Tracer, c.Secrets = tracer, c.Secrets[1:] })
		signer := e.Signer("test")
		defer signer.Close()
		order, err := secret.NewOrder(secret.Spec{Name: "default", Identity: identity(t, "spiffe://example.org/web"), TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := signer.Sign(t.Context(), order, "", func(pki.Identity) error { return nil }); err != nil {
			t.Fatal(err)
		}
		all := tracer.All(t, "certificate.issue")
		if len(all) != 1 || all[0].Attrs["countersign.identity"] != "spiffe://example.org/web" || all[0].Attrs["countersign.authority"] != "test" {
			t.Errorf("%+v", all)
		}
	})
}
