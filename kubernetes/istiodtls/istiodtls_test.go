package istiodtls_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestSecretIsMadeAndRenewed(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		s.start()
		first := s.serves()
		key := s.get().Data["tls.key"]
		if st := s.Status(); st.NotAfter != first.NotAfter || st.Fingerprint != pki.Fingerprint(first) || st.Error != "" {
			t.Errorf("status %+v", st)
		}
		s.pass(15 * time.Hour)
		second := s.serves()
		if life := second.NotAfter.Sub(second.NotBefore); life != 24*time.Hour {
			t.Errorf("it lives for %s, backdating included", life)
		}
		found := s.get()
		if second.Equal(first) || string(found.Data["tls.key"]) == string(key) {
			t.Error("it was not renewed with a new key")
		}
		for name, value := range found.Data {
			if strings.Contains(string(value), base64.StdEncoding.EncodeToString(key)) || strings.Contains(string(value), string(key)) {
				t.Errorf("%s has the old key", name)
			}
		}
		if n := len(s.ca.Requests()); n != 2 || strings.Count(s.audit.String(), `"issued"`) != 2 {
			t.Errorf("%d requests, and the audit log has:\n%s", n, s.audit.String())
		}
		if n := s.wrote(); n > 4 {
			t.Errorf("%d writes", n)
		}
	})
}

// A change of the leader costs no certificate, and neither does one that comes back.
func TestNextLeaderGoesOnWithWhatIsThere(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		s.start()
		first := s.serves()
		for range 3 {
			s.stop()
			s.next()
			s.start()
			if now := s.serves(); !now.Equal(first) {
				t.Error("another certificate")
			}
		}
		if n := len(s.ca.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
		if n := s.wrote(); n > 3 {
			t.Errorf("%d writes", n)
		}
		s.pass(15 * time.Hour)
		if s.serves().Equal(first) {
			t.Error("it was not renewed")
		}
	})
}

func TestUnreadableStateCostsOneCertificate(t *testing.T) {
	for name, state := range map[string]string{"no JSON": "{", "null": "null", "another's": `{"secret istiod-tls":{"identity":"x","authority":"y","content":"e30="}}`} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *site) {
				s.start()
				first := s.serves()
				s.stop()
				found := s.get()
				found.Data["countersign-state"] = []byte(state)
				s.put(found)
				s.next()
				s.start()
				if s.serves().Equal(first) || len(s.ca.Requests()) != 2 {
					t.Errorf("%d requests", len(s.ca.Requests()))
				}
			})
		})
	}
}

func TestWhatOthersDoIsPutRight(t *testing.T) {
	for name, harm := range map[string]func(s *site){
		"edit":     func(s *site) { found := s.get(); found.Data["tls.crt"] = []byte("theirs"); s.put(found) },
		"roots":    func(s *site) { found := s.get(); delete(found.Data, "ca.crt"); s.put(found) },
		"deletion": func(s *site) { s.remove() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *site) {
				s.start()
				first := s.serves()
				harm(s)
				s.pass(time.Minute)
				if !s.serves().Equal(first) {
					t.Error("another certificate")
				}
				if n := s.lines("restored istiod's"); n != 1 {
					t.Errorf("logged %d times", n)
				}
			})
		})
	}
}

// No certificate is asked for while there is no place for it.
func TestForeignSecretIsLeftAlone(t *testing.T) {
	for name, has := range map[string]map[string]string{"no label": nil, "other label": {owned.ManagedBy: "Helm"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *site) {
				s.put(foreign(corev1.SecretTypeTLS, has))
				s.start()
				s.pass(time.Hour)
				s.waits("is not ours")
				if got := string(s.get().Data["tls.crt"]); got != "theirs" || s.wrote() > 0 || len(s.ca.Requests()) > 0 {
					t.Errorf("it has %q, after %d writes and %d requests", got, s.wrote(), len(s.ca.Requests()))
				}
				if n := s.lines("not in its Secret"); n < 30 || n > 61 {
					t.Errorf("logged %d times in an hour", n)
				}
				s.remove()
				s.pass(time.Minute)
				s.serves()
			})
		})
	}
}

func TestForeignSecretIsAdoptedIfAllowed(t *testing.T) {
	adopt := func(c *istiodtls.Config) { c.Adopt = true }
	inBubble(t, adopt, func(s *site) {
		s.put(foreign(corev1.SecretTypeTLS, map[string]string{"team": "a"}))
		s.start()
		s.serves()
		if found := s.get(); found.UID != "foreign" || found.Labels["team"] != "a" || string(found.Data["more"]) != "kept" {
			t.Error("it was made anew")
		}
	})
	inBubble(t, adopt, func(s *site) {
		s.put(foreign(corev1.SecretTypeOpaque, nil))
		s.start()
		s.pass(time.Hour)
		s.waits("delete it")
		if s.wrote() > 0 {
			t.Error("it was written")
		}
	})
}

func TestSecretThatAppearsMeanwhileIsLeftAlone(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		s.start()
		s.serves()
		s.remove()
		s.put(foreign(corev1.SecretTypeTLS, nil))
		s.pass(time.Hour)
		s.waits("is not ours")
	})
}

func TestSecretThatAppearsBeforeTheFirstWriteIsLeftAlone(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		var once sync.Once
		s.set(func() {
			s.before = func() {
				once.Do(func() { s.put(foreign(corev1.SecretTypeTLS, nil)) })
			}
		})
		s.start()
		s.pass(time.Minute)
		s.waits("is not ours")
		if got := string(s.get().Data["tls.crt"]); got != "theirs" {
			t.Errorf("it has %q", got)
		}
	})
}

func TestRootsOfTheOverlapAreWritten(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		s.start()
		s.serves()
		old := s.ca.Bundle()
		s.ca.Rotate()
		s.pass(time.Minute)
		both := old.Union(s.ca.Bundle())
		if got := string(s.get().Data["ca.crt"]); got != string(both.PEM()) {
			t.Errorf("it has the roots\n%s", got)
		}
		s.serves()
		s.pass(26 * time.Hour)
		s.serves()
		if got := string(s.get().Data["ca.crt"]); got != string(s.ca.Bundle().PEM()) {
			t.Error("the old root is still there")
		}
	})
}

// cert-manager, or an older istio-csr, puts its own certificate back at once.
func TestAnotherWriterIsNamedOnceAndNotFought(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		s.start()
		s.serves()
		before := s.wrote()
		overwrite := func() { found := s.get(); found.Data["tls.crt"] = []byte("theirs"); s.put(found) }
		s.set(func() { s.after = overwrite })
		overwrite()
		s.pass(time.Hour)
		if n := s.wrote() - before; n < 8 || n > 20 {
			t.Errorf("%d writes in an hour", n)
		}
		if n := s.lines("another client keeps"); n != 1 || s.Status().Rival != "cert-manager" {
			t.Errorf("named %d times: %+v\n%s", n, s.Status(), &s.log)
		}
		s.set(func() { s.after = nil })
		s.pass(time.Hour)
		s.serves()
		if s.Status().Rival != "" || s.lines("no other client writes") != 1 || len(s.ca.Requests()) != 1 {
			t.Errorf("%+v, %d requests", s.Status(), len(s.ca.Requests()))
		}
	})
}

func TestNothingIsWrittenWithoutTheLease(t *testing.T) {
	var lost atomic.Bool
	held := func() error {
		if lost.Load() {
			return errors.New("this replica does not lead")
		}
		return nil
	}
	inBubble(t, func(c *istiodtls.Config) { c.Held = held }, func(s *site) {
		lost.Store(true)
		s.start()
		s.pass(10 * time.Minute)
		s.waits("does not lead")
		if s.get() != nil {
			t.Error("it was written")
		}
		lost.Store(false)
		s.pass(time.Minute)
		s.serves()
	})
}

// An API server, or an admission webhook, may quote what it refuses.
func TestRefusalDoesNotRevealTheKey(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		var body kubetest.Object
		s.set(func() {
			s.refuse = func(applied kubetest.Object) error {
				body = applied
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, istiodtls.Name, errors.New(fmt.Sprint(applied)))
			}
		})
		s.start()
		s.pass(10 * time.Minute)
		s.waits("refuses to store it: 403 Forbidden")
		said := s.log.String() + fmt.Sprint(s.Ready(), s.Status())
		if len(body) == 0 || strings.Contains(said, "tls.key") || s.lines("not in its Secret") == 0 {
			t.Errorf("it returned %s", said)
		}
		s.set(func() { s.refuse = nil })
		s.pass(time.Minute)
		s.serves()
	})
}

// What is there stays, as long as the CA is away.
func TestCAThatIsAwayTakesNothing(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		s.start()
		first := s.serves()
		s.ca.Always(catest.Fault{Err: ca.ErrUnavailable})
		s.pass(20 * time.Hour)
		if !s.serves().Equal(first) {
			t.Error("another certificate")
		}
		s.ca.Always(catest.Fault{})
		s.pass(2 * time.Hour)
		if s.serves().Equal(first) {
			t.Error("it was not renewed")
		}
	})
}

func TestEndIsQuiet(t *testing.T) {
	inBubble(t, nil, func(s *site) {
		s.start()
		before := time.Now()
		s.stop()
		if took := time.Since(before); took > 0 {
			t.Errorf("took %s", took)
		}
		if text := s.log.String(); strings.Contains(text, "WARN") {
			t.Error(text)
		}
	})
}

func TestWrongSettingsAreRefused(t *testing.T) {
	good := istiodtls.Config{Client: kubetest.NewFake().Client(), Namespace: system, Issuer: (*ra.Engine)(nil), Roots: func(string) *pki.Bundle { return nil }}
	for want, change := range map[string]func(*istiodtls.Config){
		"are required": func(c *istiodtls.Config) { c.Namespace = "" },
		"DNS name":     func(c *istiodtls.Config) { c.Names = []string{"istiod istio"} },
	} {
		cfg := good
		change(&cfg)
		if _, err := istiodtls.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := istiodtls.New(good); err != nil {
		t.Error(err)
	}
}
