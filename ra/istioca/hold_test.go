package istioca_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/ca"
)

var away = ca.Errorf(ca.Unavailable, "connection refused by vault.internal")

// begin asks in the background.
func (c *client) begin(ctx context.Context, w wish) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := c.askUntil(ctx, w)
		done <- err
	}()
	return done
}

func TestCallIsHeldWhileTheCAIsAwayForAMoment(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.ca.Fail(away)
		done := m.as(conn, "web-token", home).begin(t.Context(), wish{identity: web})
		time.Sleep(3 * time.Second)
		m.ca.Fail(nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := len(m.ca.Requests()); n > 5 {
			t.Errorf("the CA was asked %d times", n)
		}
	})
}

func TestCallIsHeldForABoundedTime(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		code   codes.Code
		result istioca.Result
	}{
		"away":          {away, codes.Unavailable, istioca.Unavailable},
		"failing":       {ca.Errorf(ca.Internal, "a bug"), codes.Unavailable, istioca.Unavailable},
		"unknown":       {errors.New("something"), codes.Unavailable, istioca.Unavailable},
		"our own token": {ca.Errorf(ca.Unauthenticated, "bad token"), codes.Unavailable, istioca.Unavailable},
		"no settings":   {ca.Errorf(ca.NotConfigured, "no settings"), codes.Unavailable, istioca.Unavailable},
		"a quota":       {ca.Errorf(ca.RateLimited, "quota"), codes.ResourceExhausted, istioca.RateLimited},
		"a long quota":  {&ca.Error{Reason: ca.RateLimited, RetryAfter: time.Minute}, codes.ResourceExhausted, istioca.RateLimited},
	} {
		inBubble(t, shop, func(t *testing.T, m *mesh) {
			conn := m.dial("192.0.2.1")
			defer conn.Close()
			m.ca.Fail(test.err)
			began := time.Now()
			st := m.as(conn, "web-token", home).refused(wish{identity: web}, test.code)
			if held := time.Since(began); held != 10*time.Second {
				t.Errorf("%s: held for %s", name, held)
			}
			if m.last() != test.result {
				t.Errorf("%s: the event is %q", name, m.last())
			}
			if test.code == codes.ResourceExhausted && name == "a long quota" && retryIn(st) != 50*time.Second {
				t.Errorf("%s: to retry in %s", name, retryIn(st))
			}
			if n := len(m.ca.Requests()); n > 10 {
				t.Errorf("%s: the CA was asked %d times", name, n)
			}
		})
	}
}

func TestRefusalOfTheCAArrivesAtOnceInFixedWords(t *testing.T) {
	for _, reason := range []ca.Reason{ca.Denied, ca.Invalid} {
		inBubble(t, shop, func(t *testing.T, m *mesh) {
			conn := m.dial("192.0.2.1")
			defer conn.Close()
			m.ca.Fail(ca.Errorf(reason, "role secret-role at vault.internal"))
			began := time.Now()
			st := m.as(conn, "web-token", home).refused(wish{identity: web}, codes.PermissionDenied)
			if st.Message() != "the certificate authority refuses the request" || time.Since(began) > 0 {
				t.Errorf("after %s the client gets: %s", time.Since(began), st.Message())
			}
		})
	}
}

func TestCAThatHangsIsUnavailable(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.ca.Set(func() {
			m.ca.Before = func(ctx context.Context, _ ca.SignRequest) error { <-ctx.Done(); return ctx.Err() }
		})
		m.as(conn, "web-token", home).refused(wish{identity: web}, codes.Unavailable)
	})
}

func TestLastErrorOfTheCAIsReturnedAfterAHang(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.ca.Fail(ca.Errorf(ca.RateLimited, "quota"))
		done := m.as(conn, "web-token", home).begin(t.Context(), wish{identity: web})
		synctest.Wait()
		m.ca.Set(func() {
			m.ca.Before = func(ctx context.Context, _ ca.SignRequest) error { <-ctx.Done(); return ctx.Err() }
		})
		if err := <-done; status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
		if n := len(m.ca.Requests()); n != 2 {
			t.Errorf("the CA was asked %d times", n)
		}
	})
}

func TestClientThatGoesAwayIsNotHeld(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.ca.Fail(away)
		ctx, cancel := context.WithCancel(t.Context())
		done := m.as(conn, "web-token", home).begin(ctx, wish{identity: web})
		time.Sleep(time.Second)
		cancel()
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
		synctest.Wait()
		if m.last() != istioca.Gone {
			t.Errorf("the event is %q", m.last())
		}
	})
}

func TestSpentBudgetIsResourceExhausted(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.engine.Budget = ra.Budget{Holder: 1, HolderEvery: time.Hour}
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		c := m.as(conn, "web-token", home)
		c.must(wish{identity: web})
		st := c.refused(wish{identity: web}, codes.ResourceExhausted)
		if in := retryIn(st); in < 59*time.Minute || in > time.Hour {
			t.Errorf("to retry in %s", in)
		}
	})
}

// A ztunnel makes a new key for each try. Who asked first is served first all the same.
func TestPlaceInTheQueueIsKeptByIdentityNotByKey(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		for _, name := range []string{"a", "b"} {
			m.pods.add(pod{cluster: home, namespace: "shop", name: name, uid: name, account: name, node: "n1"})
		}
		p.engine.Authorities[0].Limits = ra.Limits{Rate: 1.0 / 30, Burst: 1}
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		proxy := m.as(conn, "ztunnel-token", home)
		proxy.must(wish{identity: ztunnel}) // takes the only turn for 30 seconds
		const a, b = "spiffe://cluster.local/ns/shop/sa/a", "spiffe://cluster.local/ns/shop/sa/b"
		if st := proxy.refused(impersonating(a), codes.ResourceExhausted); retryIn(st) < 10*time.Second || m.last() != istioca.RateLimited {
			t.Errorf("after 10 seconds %q, to retry in %s", m.last(), retryIn(st))
		}
		proxy.refused(impersonating(b), codes.ResourceExhausted) // after 20
		time.Sleep(5 * time.Second)
		second := proxy.begin(t.Context(), impersonating(b))
		synctest.Wait()
		first := proxy.begin(t.Context(), impersonating(a)) // later, and with a new key
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-second; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("the second got %v", err)
		}
		if all := m.ca.Requests(); len(all) != 2 || all[1].SubjectID != a {
			t.Errorf("the CA was asked %v", all)
		}
	})
}

func TestShutdownEndsCallsThatAreHeld(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.ca.Fail(away)
		done := m.as(conn, "web-token", home).begin(t.Context(), wish{identity: web})
		time.Sleep(time.Second)
		began := time.Now()
		m.down()
		if err := <-done; status.Code(err) != codes.Unavailable || time.Since(began) > 0 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

func TestPolicyThatChangesWhileACallIsHeldDecides(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *ra.Rule, m *mesh)
		want   codes.Code
	}{
		"another rule gives the same": {func(r *ra.Rule, _ *mesh) { r.Name = "anew" }, codes.OK},
		"another name":                {func(r *ra.Rule, _ *mesh) { r.Names.SPIFFEID = "spiffe://new.local/ns/{namespace}/sa/{serviceAccount}" }, codes.PermissionDenied},
		"nothing":                     {func(r *ra.Rule, _ *mesh) { r.Match.Namespaces = []string{"istio-system"} }, codes.PermissionDenied},
		"the pod is gone by then":     {func(r *ra.Rule, m *mesh) { r.Name = "anew"; m.pods.finish("web") }, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, shop, func(t *testing.T, m *mesh) {
				conn := m.dial("192.0.2.1")
				defer conn.Close()
				m.ca.Fail(away)
				done := m.as(conn, "ztunnel-token", home).begin(t.Context(), impersonating(web))
				time.Sleep(time.Second)
				all := rules()
				c.change(&all[1], m)
				if err := m.engine.SetPolicy(must(ra.NewPolicy(home, all))); err != nil {
					t.Fatal(err)
				}
				m.ca.Fail(nil)
				if err := <-done; status.Code(err) != c.want {
					t.Error(err)
				}
			})
		})
	}
}

func TestServerThatIsNotReadyMakesNoCall(t *testing.T) {
	inBubble(t, func(m *mesh, p *parts) {
		shop(m, p)
		p.door.Ready = func() error { return errors.New("the clusters are not known yet") }
	}, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		m.as(conn, "web-token", home).refused(wish{identity: web}, codes.Unavailable)
		if n := m.clusters[home].asked; n > 0 {
			t.Errorf("the API server was asked %d times", n)
		}
	})
}

// open begins a call and sends nothing but its metadata.
func (c *client) open(ctx context.Context) grpc.ClientStream {
	c.t.Helper()
	stream, err := c.conn.NewStream(c.outgoing(ctx), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		c.t.Fatal(err)
	}
	return stream
}

// A CA whose clock is ahead: a call that is held for long enough gets its certificate once that
// begins. Istio's clients make a key for each call, and none costs a certificate meanwhile.
func TestCertificateIsNotGivenOutBeforeItBegins(t *testing.T) {
	inBubble(t, shop, func(t *testing.T, m *mesh) {
		conn := m.dial("192.0.2.1")
		defer conn.Close()
		c := m.as(conn, "web-token", home)
		m.ca.Set(func() { m.ca.Backdate = -8 * time.Second })
		begun := time.Now()
		if c.must(wish{identity: web}); time.Since(begun) != 8*time.Second {
			t.Errorf("held for %s", time.Since(begun))
		}
		m.ca.Set(func() { m.ca.Backdate = -4 * time.Minute })
		begun = time.Now()
		for time.Since(begun) < 3*time.Minute {
			st := c.refused(wish{identity: web}, codes.Unavailable)
			if in := retryIn(st); in > 4*time.Minute || in < 4*time.Minute-time.Since(begun)-time.Second {
				t.Errorf("after %s, to retry in %s", time.Since(begun), in)
			}
			time.Sleep(20 * time.Second)
		}
		if m.ca.Issued() != 2 {
			t.Errorf("%d certificates", m.ca.Issued())
		}
	})
}
