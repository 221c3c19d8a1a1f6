package secret_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestManyWaitersMakeOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Delay: 10 * time.Second})
		})
		got := make(chan *secret.Item, 100)
		for range 100 {
			go func() {
				item, err := e.Get(t.Context(), agent, "default")
				if err != nil {
					t.Error(err)
				}
				got <- item
			}()
		}
		for range 100 {
			if <-got != e.held("default") {
				t.Error("got another item")
			}
		}
		e.requests(1)
	})
}

func TestOneRequestIsInFlightPerIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			again := c.Secrets[0]
			again.Name = "again"
			c.Secrets = append(c.Secrets, again)
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Delay: 5 * time.Second})
		})
		after(4 * time.Second)
		e.requests(1)
		after(2 * time.Second)
		e.requests(2)
		after(5 * time.Second)
		e.held("default")
		e.held("again")
	})
}

func TestCloseDuringHang(t *testing.T) {
	for name, stuck := range map[string]bool{"that ends with its context": false, "that does not end": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stubborn{free: make(chan struct{})}
				defer close(s.free)
				s.stuck.Store(true)
				e := newEngine(t, client(func(c *catest.CA) ca.Client {
					if s.Client = c; stuck {
						return s
					}
					c.Always(catest.Fault{Hang: true})
					return c
				}))
				waiter := make(chan error)
				go func() { _, err := e.Get(context.Background(), agent, "default"); waiter <- err }()
				synctest.Wait()
				begin := time.Now()
				e.Close()
				if d := time.Since(begin); d > time.Second {
					t.Errorf("Close took %s", d)
				}
				if err := <-waiter; !errors.Is(err, secret.ErrClosed) {
					t.Errorf("the waiter got %v", err)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestReleasedSecretIsObtainedAgainOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		first := e.held("default")
		if !e.Has(agent, "default", first.Version) || e.Has(agent, "default", "other") {
			t.Error("Has does not tell what is held")
		}
		if err := e.Release(agent, "default"); err != nil {
			t.Fatal(err)
		}
		after(2 * ttl)
		e.notReady("default")
		e.requests(1)
		if !e.status("default").Released || e.Has(agent, "default", first.Version) {
			t.Error("the status does not tell")
		}
		second, err := e.Get(t.Context(), agent, "default")
		if err != nil || bytes.Equal(first.Key, second.Key) {
			t.Errorf("got %v, %v", second, err)
		}
	})
}

func TestReleasedSecretIsReplacedAtOnceWhileWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		first := e.held("default")
		told := make(chan string, 1)
		stop, _ := e.Watch(agent, "default", func(name string) { told <- name })
		defer stop()
		if err := e.Release(agent, "default"); err != nil {
			t.Fatal(err)
		}
		if <-told != "default" || e.held("default").Version == first.Version {
			t.Error("the old one is still there")
		}
	})
}

func TestReleaseDuringRequestForgetsItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Delay: 10 * time.Second})
		})
		synctest.Wait()
		_ = e.Release(agent, "default")
		after(time.Minute)
		e.notReady("default")
		e.requests(1)
		if f := e.status("default").Failure; f != nil {
			t.Errorf("the request that nobody wants any more is told as a failure: %+v", f)
		}
	})
}

func TestOnlyConfiguredNamesAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Admit = func(caller secret.Caller, name string) bool { return caller.UID == 0 || name == "ROOTCA" }
		})
		e.held("default")
		for name, caller := range map[string]secret.Caller{"other": agent, "": agent, "default": {UID: 7}} {
			if _, err := e.Peek(caller, name); !errors.Is(err, secret.ErrUnknown) {
				t.Errorf("Peek %q: %v", name, err)
			}
			if _, err := e.Watch(caller, name, func(string) {}); errors.Is(err, secret.ErrUnknown) != (caller.UID == 7) {
				t.Errorf("Watch %q: %v", name, err) // what is not configured yet may be watched
			}
			if _, err := e.Get(t.Context(), caller, name); !errors.Is(err, secret.ErrUnknown) {
				t.Errorf("Get %q: %v", name, err)
			}
			if err := e.Release(caller, name); !errors.Is(err, secret.ErrUnknown) {
				t.Errorf("Release %q: %v", name, err)
			}
		}
		if _, err := e.Peek(secret.Caller{UID: 7}, "ROOTCA"); err != nil {
			t.Error(err)
		}
	})
}

func TestTimedOutGetReturnsLastFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: ca.Errorf(ca.Denied, "not you\x1b[31m")})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, ofManager := e.Get(ctx, agent, "default")
		_, ofSource := secret.Get(ctx, secret.First(e), agent, "default")
		_, ofPeek := e.Peek(agent, "default")
		for _, err := range []error{ofManager, ofSource, ofPeek} {
			if !errors.Is(err, secret.ErrNotReady) || !strings.Contains(err.Error(), `not you\x1b[31m`) {
				t.Errorf("got %q", err)
			}
		}
		if !errors.Is(ofManager, context.DeadlineExceeded) || ofManager.Error() != ofSource.Error() {
			t.Errorf("got %q and %q", ofManager, ofSource)
		}
	})
}

func TestKeysAndTokensAreNeverShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const token = "a-very-secret-token"
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Token = func(context.Context) (ca.Bearer, error) { return ca.Bearer{Token: token}, nil }
			c.Authorities[0].Client.(*catest.CA).Next(3, catest.Fault{Err: ca.Errorf(ca.Unavailable, "token %s is fine, come back", token)})
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Break: catest.WrongKey})
		})
		after(time.Minute)
		status, _ := json.Marshal(e.Status())
		item := e.held("default")
		shown := e.logged() + string(status)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			shown += fmt.Sprintf(verb, item) + fmt.Sprintf(verb, *item) + fmt.Sprintf(verb, e.Status())
		}
		for _, event := range e.events {
			shown += fmt.Sprintf("%+v", event)
		}
		block, _ := pem.Decode(item.Key)
		for name, secret := range map[string]string{
			"the token": token, "the key's PEM": strings.Split(string(item.Key), "\n")[1],
			"the key's hex": hex.EncodeToString(block.Bytes), "the key's bytes": string(block.Bytes),
			"a list of the key's bytes": strings.Trim(fmt.Sprint(block.Bytes), "[]"),
		} {
			if strings.Contains(shown, secret) {
				t.Errorf("%s is shown", name)
			}
		}
		if !strings.Contains(shown, "(secret) is fine") {
			t.Error("the failure is not shown at all")
		}
	})
}
