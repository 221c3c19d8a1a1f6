package spiresecret_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

func leafOf(t *testing.T, item *secret.Item) *x509.Certificate {
	t.Helper()
	certs, err := pki.ParseCertificates(item.Chain)
	must(t, err)
	return certs[0]
}

func TestFirstSVIDAndItsBundleAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		sent := of(t, root, web, "spiffe://example.org/other")
		from := sending(t, sent)
		r := reading(t, from)
		r.serves(sent.Svids[0].X509Svid)
		pair, roots := r.held("default"), r.held("ROOTCA")
		if _, err := pair.PrivateKey(); err != nil {
			t.Error(err)
		}
		if pair.Identity.SPIFFEID.String() != web || pair.RootFingerprint != pki.Fingerprint(root.Cert) {
			t.Errorf("%s under root %s", pair, pair.RootFingerprint)
		}
		if got, err := pki.ParseBundle(roots.Roots); err != nil || !got.Equal(pki.NewBundle(root.Cert)) {
			t.Errorf("roots: %v, %v", got, err)
		}
		if got := from.headers.Get("workload.spiffe.io"); len(got) != 1 || got[0] != "true" {
			t.Errorf("the security header is %q", got)
		}
		if s := r.status("default"); !s.Held || s.Failure != nil || s.Rotations != 1 || s.Asked != "the first X.509-SVID" {
			t.Errorf("%+v", s)
		}
		r.fails("other", secret.ErrUnknown)
	})
}

func TestIntermediatesAreServedAndCutAtTheRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		template := *root.Cert
		template.SerialNumber, template.NotAfter, template.SubjectKeyId = nil, time.Now().Add(time.Minute), nil
		template.Subject.CommonName = "intermediate"
		intermediate := root.Issue(t, &template)
		leaf := intermediate.Leaf(t, time.Hour, web)
		r := reading(t, sending(t, &reply{Svids: of(t, root, web).Svids[:0]}))
		r.fails("default", secret.ErrNotReady)
		sent := &reply{}
		sent.Svids = append(sent.Svids, svid(t, web, root, leaf, intermediate))
		r2 := reading(t, sending(t, sent))
		if certs, err := pki.ParseCertificates(r2.held("default").Chain); err != nil || len(certs) != 2 {
			t.Errorf("%d certificates, %v", len(certs), err)
		}
		// Peers refuse the chain once the intermediate has ended.
		if got := r2.held("default").NotAfter; got.After(time.Now().Add(time.Minute)) {
			t.Errorf("it ends at %s", got)
		}
	})
}

func TestRotationNotifiesRootsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := certtest.Root(t), certtest.Root(t)
		from := sending(t, of(t, old, web))
		r := reading(t, from)
		var told []string
		for _, name := range []string{"default", "ROOTCA"} {
			stop, err := r.Watch(agent, name, func(name string) { told = append(told, name) })
			must(t, err)
			defer stop()
		}
		was := r.held("default")
		sent := of(t, next, web)
		from.send(sent)
		pass(time.Second)
		r.serves(sent.Svids[0].X509Svid)
		if strings.Join(told, " ") != "ROOTCA default" {
			t.Errorf("notified of %q", told)
		}
		if r.held("default").Version == was.Version || r.count(secret.Rotated, "default") != 2 {
			t.Error("the version or the count is the same")
		}
		from.send(sent)
		pass(time.Second)
		if len(told) != 2 {
			t.Errorf("notified of the same content: %q", told)
		}
		if n := r.status("default").Rotations; n != 2 {
			t.Errorf("%d rotations", n)
		}
	})
}

func TestSocketThatComesLateIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := newAPI(t)
		r := reading(t, from)
		r.fails("default", secret.ErrNotReady)
		if _, err := r.Peek(agent, "default"); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("the error does not say why: %v", err)
		}
		pass(10 * time.Minute)
		from.send(of(t, certtest.Root(t), web))
		from.start()
		pass(11 * time.Second)
		r.held("default")
		if reason, text := r.fault("default"); reason != "" {
			t.Errorf("%s: %s", reason, text)
		}
	})
}

func TestHeldIsServedToItsEndWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		from := sending(t, of(t, root, web))
		r := reading(t, from)
		from.stop()
		pass(59 * time.Minute)
		r.held("default")
		if reason, _ := r.fault("default"); reason != "unavailable" {
			t.Errorf("the reason is %q", reason)
		}
		// Alerts count the attempts; a log that repeats itself is no help.
		if n := r.count(secret.Failed, "default"); n < 60 {
			t.Errorf("%d failed attempts in an hour", n)
		}
		if n := strings.Count(r.log.String(), "is not available"); n > 2 {
			t.Errorf("the log has so %d times", n)
		}
		pass(2 * time.Minute)
		r.fails("default", secret.ErrNotReady)
		r.held("ROOTCA")
		if s := r.status("default"); s.Held || s.ExpiredSince.IsZero() || r.count(secret.Expired, "default") != 1 {
			t.Errorf("%+v", s)
		}
		sent := of(t, root, web)
		from.send(sent)
		from.start()
		pass(11 * time.Second)
		r.serves(sent.Svids[0].X509Svid)
	})
}

func TestEndOfSessionIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		from := newAPI(t)
		r := reading(t, from)
		pass(10 * time.Minute) // the backoff is at its limit
		from.send(of(t, root, web))
		from.start()
		pass(2 * time.Minute)
		from.stop()
		sent := of(t, root, web)
		from.send(sent)
		from.start()
		pass(1250*time.Millisecond + 100*time.Millisecond)
		r.serves(sent.Svids[0].X509Svid)
	})
}

func TestDeniedIsReportedAndAskedAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	synctest.Test(t, func(t *testing.T) {
		from := newAPI(t)
		from.answer(func(stream) error { return status.Error(codes.PermissionDenied, "no identity issued") })
		from.start()
		r := reading(t, from)
		pass(time.Hour)
		if reason, text := r.fault("default"); reason != "denied" || !strings.Contains(text, "no identity issued") {
			t.Errorf("%s: %s", reason, text)
		}
		if dials, _ := from.counts(); dials < 60 || dials > 200 {
			t.Errorf("%d attempts in an hour", dials)
		}
		from.send(of(t, certtest.Root(t), web))
		from.answer(nil)
		pass(time.Minute)
		r.held("default")
	})
}

func TestDeniedLaterKeepsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := sending(t, of(t, certtest.Root(t), web))
		r := reading(t, from)
		from.answer(func(stream) error { return status.Error(codes.PermissionDenied, "no identity issued") })
		from.stop()
		from.start()
		pass(30 * time.Minute)
		r.held("default")
		if reason, _ := r.fault("default"); reason != "denied" {
			t.Errorf("the reason is %q", reason)
		}
	})
}

func TestServerThatHangsIsLeft(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, dial := range map[string]func(*api) func(context.Context) (net.Conn, error){
		"stream": func(a *api) func(context.Context) (net.Conn, error) {
			a.answer(func(s stream) error { return hang(s.Context()) })
			a.start()
			return a.dial
		},
		"connect": func(*api) func(context.Context) (net.Conn, error) {
			return func(ctx context.Context) (net.Conn, error) { hang(ctx); return nil, ctx.Err() }
		},
		"handshake": func(*api) func(context.Context) (net.Conn, error) { return silence(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := spiresecret.New(spiresecret.Config{Dial: dial(newAPI(t)), Log: slog.New(slog.DiscardHandler)})
				must(t, err)
				defer s.Close()
				pass(31 * time.Second)
				failure := s.Status()[0].Failure
				if failure == nil || failure.Reason != "deadline exceeded" && failure.Reason != "unavailable" {
					t.Errorf("%+v", failure)
				}
			})
		})
	}
}

// silence connects to a server that reads and sends nothing.
func silence(t *testing.T) func(context.Context) (net.Conn, error) {
	t.Helper()
	return func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			for buf := make([]byte, 1<<10); ; {
				if _, err := far.Read(buf); err != nil {
					return
				}
			}
		}()
		return near, nil
	}
}

func TestServerThatAnswersAndHangsUpIsNotAskedForEver(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	synctest.Test(t, func(t *testing.T) {
		sent := of(t, certtest.Root(t), web)
		from := newAPI(t)
		from.answer(func(s stream) error { return s.Send(sent) })
		from.start()
		r := reading(t, from)
		pass(61 * time.Minute)
		if _, calls := from.counts(); calls < 60 || calls > 300 {
			t.Errorf("%d calls in an hour", calls)
		}
		r.fails("default", secret.ErrNotReady) // the same was sent all the time, and has ended
	})
}

func TestFloodOfRepliesIsReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		first, second := of(t, root, web), of(t, root, web)
		from := newAPI(t)
		from.answer(func(s stream) error {
			for {
				if err := errors.Join(s.Send(first), s.Send(second)); err != nil {
					return err
				}
			}
		})
		from.start()
		r := reading(t, from)
		pass(10 * time.Second)
		if n := r.status("default").Rotations; n < 50 || n > 101 {
			t.Errorf("%d replies were taken in 10 seconds", n)
		}
	})
}

func TestHugeReplyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := sending(t, of(t, certtest.Root(t), web))
		r := reading(t, from)
		huge := of(t, certtest.Root(t), web)
		huge.FederatedBundles = map[string][]byte{"spiffe://example.com": make([]byte, 5<<20)}
		from.send(huge)
		pass(time.Minute)
		r.held("default")
		if reason, text := r.fault("default"); reason == "" || !strings.Contains(text, "larger than max") {
			t.Errorf("%s: %s", reason, text)
		}
	})
}

func TestCertificateOfTheFutureIsServedWhenItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		template := certtest.Leaf(t, time.Hour, web)
		template.NotBefore = time.Now().Add(2 * time.Minute)
		sent := &reply{}
		sent.Svids = append(sent.Svids, svid(t, web, root, root.Issue(t, template)))
		r := reading(t, sending(t, sent))
		if reason, text := r.fault("default"); reason != "not-before" {
			t.Errorf("%s: %s", reason, text)
		}
		pass(119 * time.Second)
		r.fails("default", secret.ErrNotReady)
		pass(31 * time.Second)
		r.held("default")
	})
}

func TestCertificateOfTheFutureBeginsWhileTheWorkloadAPIIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		template := certtest.Leaf(t, time.Hour, web)
		template.NotBefore = time.Now().Add(2 * time.Minute)
		sent := &reply{}
		sent.Svids = append(sent.Svids, svid(t, web, root, root.Issue(t, template)))
		from := sending(t, sent)
		r := reading(t, from)
		from.stop()
		for range 2 { // before it begins and after
			pass(80 * time.Second)
			for _, name := range []string{"default", "ROOTCA"} {
				if reason, text := r.fault(name); reason != "unavailable" {
					t.Errorf("%s: %s: %s", name, reason, text)
				}
			}
		}
		r.held("default")
		if strings.Contains(r.log.String(), "available again") {
			t.Error(r.log)
		}
		from.start()
		pass(time.Minute)
		if reason, text := r.fault("default"); reason != "" || !strings.Contains(r.log.String(), "available again") {
			t.Errorf("%s: %s\n%s", reason, text, r.log)
		}
	})
}

func TestWorkloadAPIDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var specs []spiresecret.Spec
		for i := range 20 {
			specs = append(specs, spiresecret.Spec{Name: strconv.Itoa(i), Kind: secret.KeyPair, SPIFFEID: web})
		}
		from := newAPI(t)
		from.answer(func(to stream) error {
			for i := range 100 { // each is a new reason for each secret
				if err := to.Send(&reply{Svids: []*workloadv1.X509SVID{{SpiffeId: strconv.Itoa(i)}}}); err != nil {
					return err
				}
			}
			<-to.Context().Done()
			return nil
		})
		from.start()
		r := reading(t, from, specs...)
		pass(time.Minute)
		if n := strings.Count(r.log.String(), "\n"); n < 200 || n > 1000 {
			t.Errorf("%d lines", n)
		}
	})
}

func TestRenewalIsExpectedAsSPIREDoesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		for _, c := range []struct{ life, left time.Duration }{{2 * time.Hour, time.Hour}, {100 * time.Hour, 24 * time.Hour}} {
			sent := &reply{}
			sent.Svids = append(sent.Svids, svid(t, web, root, root.Leaf(t, c.life-time.Hour, web)))
			item := reading(t, sending(t, sent)).held("default")
			if got := item.NotAfter.Sub(item.RenewAt); got != c.left {
				t.Errorf("a life of %s: %s before its end", c.life, got)
			}
		}
	})
}

func TestCloseNotifiesWatchersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reading(t, sending(t, of(t, certtest.Root(t), web)))
		told := 0
		if _, err := r.Watch(agent, "default", func(string) { told++ }); err != nil {
			t.Fatal(err)
		}
		stop, err := r.Watch(agent, "default", func(string) { t.Error("notified after stop") })
		must(t, err)
		stop()
		stop()
		if err := errors.Join(r.Close(), r.Close()); err != nil || told != 1 {
			t.Errorf("%v; told %d times", err, told)
		}
		r.fails("default", secret.ErrClosed)
		if _, err := r.Watch(agent, "default", nil); !errors.Is(err, secret.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestUnknownNameIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reading(t, newAPI(t))
		if _, err := r.Watch(agent, "other", nil); !errors.Is(err, secret.ErrUnknown) {
			t.Error(err)
		}
	})
}

func TestKeyIsNeverShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		good, bad := of(t, root, web), of(t, root, web)
		bad.Svids[0].X509SvidKey = append([]byte("SECRETSECRET"), bad.Svids[0].X509SvidKey...)
		from := sending(t, bad)
		r := reading(t, from)
		from.send(good)
		pass(time.Second)
		key := string(r.held("default").Key)
		said := r.log.String()
		for _, e := range r.events {
			if e.Failure != nil {
				said += e.Failure.Text
			}
		}
		block, _ := pem.Decode([]byte(key))
		for _, part := range []string{"SECRET", key[40:80], string(block.Bytes[20:40])} {
			if strings.Contains(said, part) {
				t.Errorf("%q was shown:\n%s", part, said)
			}
		}
	})
}
