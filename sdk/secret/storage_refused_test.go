package secret_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestStateNotFittingSettingsIsIgnored(t *testing.T) {
	for name, c := range map[string]struct {
		wait   time.Duration
		change func(*secret.Config)
		says   string
	}{
		"another identity":  {0, func(c *secret.Config) { c.Secrets[0].Identity.DNSNames = []string{"other.test"} }, "is configured"},
		"another key type":  {0, func(c *secret.Config) { c.Secrets[0].KeyType = pki.ECDSAP384 }, "its key is of type"},
		"another authority": {0, func(c *secret.Config) { rename(c, "other") }, "it was signed by authority"},
		"a shorter TTL":     {0, func(c *secret.Config) { c.Secrets[0].TTL = time.Minute }, "not-after"},
		"other pins":        {0, func(c *secret.Config) { c.Authorities[0].PinnedRoots = catest.NewCA(catest.Options{}).Bundle() }, "there is no root"},
		"another anchor":    {0, func(c *secret.Config) { c.Secrets[0].Anchor = catest.NewCA(catest.Options{}).Bundle }, "anchor"},
		"it has expired":    {ttl + time.Second, nil, "expired"},
		"the clock was set back a little": {0, func(c *secret.Config) {
			now := c.Now
			c.Now = func() time.Time { return now().Add(-4 * time.Minute) }
		}, "not valid yet"},
		"the clock was set back before it": {0, func(c *secret.Config) {
			now := c.Now
			c.Now = func() time.Time { return now().Add(-time.Hour) }
		}, "not-before"},
		"the clock was set forward beyond it": {0, func(c *secret.Config) {
			now := c.Now
			c.Now = func() time.Time { return now().Add(2 * ttl) }
		}, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKept(t, nil)
				k.held("default")
				k.ca.set(true)
				time.Sleep(c.wait)
				k.restart(c.change)
				k.notReady("default")
				if log := k.logged(); !strings.Contains(log, c.says) || name != "another authority" && k.count(secret.StateFailed, "refused") == 0 {
					t.Errorf("want a warning with %q:\n%s", c.says, log)
				}
			})
		})
	}
}

// rename gives the authority another name.
func rename(c *secret.Config, name string) {
	c.Authorities[0].Name = name
	for i := range c.Secrets {
		c.Secrets[i].Authorities = []string{name}
	}
}

func TestStoredNameIsIgnoredOnceItMustBeExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, func(c *secret.Config) {
			c.Authorities[0].Names = new(pki.AnyName)
			c.Authorities[0].Client.(*outage).Next(1, catest.Fault{Break: catest.WrongName})
		})
		k.held("default")
		k.ca.set(true)
		k.restart(func(c *secret.Config) { c.Authorities[0].Names = new(pki.AnyName) })
		k.peek("default")
		k.restart(nil)
		k.notReady("default")
	})
}

// What a provider knew of its CA when it signed holds for what is stored, too.
func TestStoredCertificateOfAFixedLifetimeIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, func(c *secret.Config) {
			of := c.Authorities[0].Client.(*outage)
			of.Next(1, catest.Fault{Break: catest.TooLong})
			of.facts = ca.Facts{FixedLifetime: true}
		})
		k.held("default")
		k.ca.set(true)
		k.restart(nil)
		k.peek("default")
		k.restart(func(c *secret.Config) { c.Authorities[0].AcceptLongerTTL = new(false) })
		k.notReady("default")
	})
}

func TestDamagedRecordIsIgnored(t *testing.T) {
	for name, spoil := range map[string]func(*memory){
		"the storage fails":        func(m *memory) { m.fault = errors.New("the disk is on fire") },
		"no JSON":                  func(m *memory) { m.set("secret default", "{") },
		"of another version":       func(m *memory) { m.set("secret default", `{"version":2}`) },
		"empty":                    func(m *memory) { m.set("secret default", `{"version":1}`) },
		"without a key":            func(m *memory) { m.set("secret default", `{"version":1,"key_type":"ecdsa-p256"}`) },
		"roots that are no JSON":   func(m *memory) { m.set("roots test", "[]") },
		"roots of another version": func(m *memory) { m.set("roots test", `{"version":0}`) },
		"no roots":                 func(m *memory) { m.set("roots test", `{"version":1,"roots":[]}`) },
		"roots that are none":      func(m *memory) { m.set("roots test", `{"version":1,"roots":[{"der":"AAAA"}]}`) },
		"roots of somebody else": func(m *memory) {
			r := m.records["roots test"]
			r.Authority = "other"
			m.records["roots test"] = r
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKept(t, nil)
				k.held("default")
				k.ca.set(true)
				k.Close()
				spoil(k.store)
				k.restart(nil)
				k.notReady("default")
				k.store.setFault(nil)
				if k.count(secret.StateFailed, "refused")+k.count(secret.StateFailed, "load") == 0 || !strings.Contains(k.logged(), "level=WARN") {
					t.Errorf("nothing is told:\n%s", k.logged())
				}
				if strings.Contains(k.logged(), "PRIVATE") {
					t.Error("a key is logged")
				}
				k.ca.set(false)
				after(2 * time.Minute)
				item := k.held("default")
				k.restart(nil)
				if k.peek("default").Version != item.Version {
					t.Error("the record was not replaced by a good one")
				}
			})
		})
	}
}

func (m *memory) set(name, content string) {
	r := m.records[name]
	r.Content = []byte(content)
	m.records[name] = r
}

func TestKeyOfOtherRecordIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, nil)
		k.held("default")
		before := k.store.copy()
		k.untilRenewal(time.Second)
		k.Close()
		old, now := string(before.records["secret default"].Content), string(k.store.records["secret default"].Content)
		oldKey, _, _ := strings.Cut(old, `"chain"`)
		_, nowChain, _ := strings.Cut(now, `"chain"`)
		k.store.set("secret default", oldKey+`"chain"`+nowChain)
		k.ca.set(true)
		k.restart(nil)
		k.notReady("default")
		if !strings.Contains(k.logged(), `check \"key\"`) {
			t.Errorf("want the check of the key:\n%s", k.logged())
		}
	})
}

func TestRolledBackRecordsServeOnlyUntilCAAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, nil)
		first := k.held("default")
		old := k.store.copy()
		k.ca.Rotate() // the old root is dropped
		k.untilRenewal(time.Second)
		k.held("default")

		k.ca.set(true)
		k.store = old.copy()
		k.restart(nil)
		if k.peek("default").Version != first.Version {
			t.Fatal("the old record is authentic, and its certificate is valid")
		}
		k.ca.set(false)
		after(time.Minute)
		if k.held("default").Version == first.Version {
			t.Error("its rotation was due, and it is still served")
		}

		k.store = old.copy()
		k.ca.set(true)
		after(first.NotAfter.Sub(k.now()) + time.Second)
		k.restart(nil)
		k.notReady("default")
		k.notReady("ROOTCA") // its root came with that certificate, and goes with it
	})
}

func TestFailedStoreOrForgetIsRetriedWithoutRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left")
		k := newKept(t, func(c *secret.Config) { c.Storage.(*memory).fault = full })
		first := k.held("default")
		k.store.setFault(nil)
		after(5 * time.Minute)
		if k.held("default") != first || len(k.store.names()) != 2 {
			t.Errorf("stored are %q", k.store.names())
		}
		k.store.setFault(full)
		if err := k.Release(agent, "default"); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if len(k.store.names()) != 2 {
			t.Errorf("stored are %q", k.store.names())
		}
		k.store.setFault(nil)
		after(5 * time.Minute)
		if got := k.store.names(); len(got) != 1 || got[0] != "roots test" {
			t.Errorf("stored are %q: a released key is still there", got)
		}
	})
}
