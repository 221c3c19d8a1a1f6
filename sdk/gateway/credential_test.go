package gateway_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestTokenIsSentOnlyUntilCertificateExists(t *testing.T) {
	rejected := 0
	inWorld(t, token("sesame-token", &rejected), func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		w.watch(web)
		w.holds(web, good)
		if c := w.called()[0]; c.who != "" || c.headers.Get("authorization")[0] != "Bearer sesame-token" {
			t.Errorf("called as %q with %d tokens", c.who, len(c.headers.Get("authorization")))
		}
		w.certificate("second", time.Hour)
		w.stop()
		w.start()
		time.Sleep(time.Minute)
		calls := w.called()
		if c := calls[len(calls)-1]; c.who != "second" || len(c.headers.Get("authorization")) != 0 {
			t.Errorf("called as %q with %d tokens", c.who, len(c.headers.Get("authorization")))
		}
	})
	if rejected != 0 {
		t.Errorf("a good token was rejected %d times", rejected)
	}
}

func TestRejectedTokenIsReportedAndNotLogged(t *testing.T) {
	rejected := 0
	inWorld(t, token("sesame-token", &rejected), func(w *world) {
		w.refuse = errNotYou
		w.watch(web)
		time.Sleep(time.Minute)
		w.end()
		if rejected == 0 {
			t.Error("the token's source was not told")
		}
		if s := w.client.Status(); s.Failure == nil || s.Failure.Reason != "unauthenticated" || strings.Contains(w.log.String()+s.Failure.Text, "sesame") {
			t.Errorf("status %+v\n%s", s, w.log)
		}
	})
}

func TestServiceWithoutTLSGetsNoToken(t *testing.T) {
	rejected, heard := 0, make(chan []byte, 100)
	adjust := func(w *world, c *gateway.Config) {
		token("sesame-token", &rejected)(w, c)
		c.Dial = plaintext(heard)
	}
	inWorld(t, adjust, func(w *world) {
		w.watch(web)
		time.Sleep(5 * time.Minute)
		w.answers(web, xds.ErrNotReady)
	})
	if len(heard) == 0 {
		t.Fatal("nothing was sent at all")
	}
	for len(heard) > 0 {
		if strings.Contains(string(<-heard), "sesame") {
			t.Error("the token went out in plaintext")
		}
	}
}

func TestNewCertificateEndsWaiting(t *testing.T) {
	inWorld(t, func(w *world, _ *gateway.Config) { delete(w.own.items, "default") }, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		w.watch(web)
		time.Sleep(time.Hour)
		if n := w.dialled(); n != 0 {
			t.Errorf("dialled %d times without a credential", n)
		}
		w.certificate("late", time.Hour)
		w.holds(web, good)
	})
}

func TestStreamIsReopenedWhenCertificateEnds(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.certificate("short", time.Hour)
		good := w.pair(web)
		w.put(web, good)
		w.watch(web)
		w.certificate("next", 100*time.Hour)
		time.Sleep(59 * time.Minute)
		if n := len(w.called()); n != 1 {
			t.Fatalf("%d streams before the end of the first certificate", n)
		}
		time.Sleep(2 * time.Minute)
		calls := w.called()
		if len(calls) != 2 || calls[1].who != "next" {
			t.Errorf("called %v", calls)
		}
		w.holds(web, good)
		if n := w.count(gateway.Failed); n != 0 {
			t.Errorf("%d failures", n)
		}
	})
}

func TestExpiredCertificateIsNotSent(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.certificate("short", time.Hour)
		w.put(web, w.pair(web))
		w.watch(web)
		time.Sleep(3 * time.Hour)
		if n := len(w.called()); n != 1 {
			t.Errorf("called %d times", n)
		}
		if s := w.client.Status(); s.Failure == nil || !strings.Contains(s.Failure.Text, "expired") {
			t.Errorf("status %+v", s)
		}
	})
}

func TestUnverifiedServiceGetsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	for name, adjust := range map[string]func(*world, *gateway.Config){
		"another name": func(_ *world, c *gateway.Config) { c.ServerName = "other.test" },
		"another root": func(w *world, _ *gateway.Config) {
			w.own.put(&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Roots: certtest.Root(w.t).PEM()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, adjust, func(w *world) {
				w.put(web, w.pair(web))
				w.watch(web)
				time.Sleep(5 * time.Minute)
				w.answers(web, xds.ErrNotReady)
				if len(w.called()) != 0 || w.dialled() == 0 {
					t.Errorf("called %d times, dialled %d", len(w.called()), w.dialled())
				}
			})
		})
	}
}

func TestRootFileIsReadForEachConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "root.pem")
	adjust := func(w *world, c *gateway.Config) {
		c.RootFile = file
		w.own.put(&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Roots: certtest.Root(w.t).PEM()})
	}
	inWorld(t, adjust, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		w.watch(web)
		time.Sleep(time.Minute)
		w.answers(web, xds.ErrNotReady)
		if err := os.WriteFile(file, w.ca.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.holds(web, good)
	})
}

func TestTokenQuotedByServiceIsNotInStatus(t *testing.T) {
	rejected := 0
	inWorld(t, token("sesame-token", &rejected), func(w *world) {
		w.refuse = status.Error(codes.Unauthenticated, "no such token: sesame-token")
		w.watch(web)
		w.pass()
		w.end()
		if s := w.client.Status(); s.Failure == nil || !strings.Contains(s.Failure.Text, "no such token: (secret)") || strings.Contains(w.log.String(), "sesame") {
			t.Errorf("status %+v\n%s", s.Failure, w.log)
		}
	})
}

// The hook for rejected tokens is not called for certificates, and is optional.
func TestOnlyTokensAreReportedAsRejected(t *testing.T) {
	rejected := 0
	refusing := func(w *world, c *gateway.Config) {
		w.refuse = errNotYou
		c.TokenRejected = func(ca.Token) { rejected++ }
	}
	inWorld(t, refusing, func(w *world) { w.watch(web); w.pass() })
	if rejected != 0 {
		t.Errorf("%d tokens are rejected where a certificate was shown", rejected)
	}
	inWorld(t, func(w *world, c *gateway.Config) {
		token("sesame-token", &rejected)(w, c)
		refusing(w, c)
		c.TokenRejected = nil
	}, func(w *world) {
		w.watch(web)
		w.pass()
		if s := w.client.Status(); s.Failure == nil {
			t.Error("it is not a failure")
		}
	})
	inWorld(t, func(w *world, c *gateway.Config) {
		token("sesame-token", &rejected)(w, c)
		w.refuse = status.Error(codes.PermissionDenied, "not for you")
	}, func(w *world) { w.watch(web); w.pass() })
	if rejected != 0 {
		t.Error("a token is rejected that was good and had no right")
	}
}

func TestStreamIsReopenedWhenTokenEnds(t *testing.T) {
	rejected, n := 0, 0
	inWorld(t, func(w *world, c *gateway.Config) {
		token("", &rejected)(w, c)
		c.Token = func(context.Context) (ca.Bearer, error) {
			n++
			return ca.Bearer{Token: "sesame-token", Expiry: time.Now().Add(time.Hour)}, nil
		}
	}, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		w.watch(web)
		time.Sleep(90 * time.Minute)
		w.holds(web, good)
		if n != 2 || len(w.called()) != 2 || w.count(gateway.Failed) != 0 {
			t.Errorf("%d tokens, called %d times, failed %d", n, len(w.called()), w.count(gateway.Failed))
		}
	})
}
