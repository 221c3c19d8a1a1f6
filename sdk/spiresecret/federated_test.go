package spiresecret_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

func TestEachTrustDomainIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, partner := certtest.Root(t), certtest.Root(t)
		sent := of(t, own, web)
		sent.FederatedBundles = map[string][]byte{
			"spiffe://example.com": der(partner),
			"spiffe://example.org": der(partner), // the one of the X.509-SVID counts
			"spiffe://Bad/domain":  der(partner),
		}
		from := sending(t, sent)
		r := followDomains(t, from)
		r.domainsAre("example.com", "example.org")
		for name, root := range map[string]*certtest.Pair{"spiffe://example.com": partner, "spiffe://example.org": own} {
			if got := r.held(name).Roots; !bytes.Equal(got, pki.NewBundle(root.Cert).PEM()) {
				t.Errorf("%s has other roots", name)
			}
		}

		broken := of(t, own, web)
		broken.FederatedBundles = map[string][]byte{"spiffe://example.com": []byte("none")}
		from.send(broken)
		synctest.Wait()
		r.held("spiffe://example.com") // the one before

		from.send(&reply{}) // which the standard does not allow
		time.Sleep(time.Minute)
		synctest.Wait()
		r.domainsAre("example.com", "example.org")

		changed := make(chan string, 1)
		stop, err := r.Watch(agent, "spiffe://example.com", func(name string) { changed <- name })
		must(t, err)
		defer stop()
		from.send(of(t, own, web))
		<-changed
		r.fails("spiffe://example.com", secret.ErrUnknown)
		synctest.Wait()
		r.domainsAre("example.org")
	})
}

// However many trust domains are federated, the workload's own is served.
func TestTrustDomainsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, partner := certtest.Root(t), der(certtest.Root(t))
		sent := of(t, own, web)
		sent.FederatedBundles = map[string][]byte{}
		for i := range 1001 {
			sent.FederatedBundles[fmt.Sprintf("spiffe://%d.example", 1000+i)] = partner
		}
		r := followDomains(t, sending(t, sent))
		all := r.Federated()
		if len(all) != 1000 || all[998] != "1998.example" || all[999] != "example.org" {
			t.Errorf("%d trust domains, the last are %q", len(all), all[max(0, len(all)-2):])
		}
	})
}

func TestTrustDomainsAreServedOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reading(t, sending(t, of(t, certtest.Root(t), web)))
		r.fails("spiffe://example.org", secret.ErrUnknown)
		r.domainsAre()
	})
}

func followDomains(t *testing.T, from *api) *reader {
	t.Helper()
	r := &reader{t: t, log: &logtest.Log{}}
	var err error
	r.Source, err = spiresecret.New(spiresecret.Config{Dial: from.dial, Federated: true, Log: r.log.Logger()})
	must(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		r.fails("spiffe://example.org", secret.ErrClosed)
		if _, err := r.Watch(agent, "spiffe://example.org", func(string) {}); !errors.Is(err, secret.ErrClosed) {
			t.Errorf("watched after Close: %v", err)
		}
	})
	synctest.Wait()
	return r
}

func (r *reader) domainsAre(want ...string) {
	r.t.Helper()
	if got := r.Federated(); !slices.Equal(got, want) {
		r.t.Errorf("trust domains %q, want %q\n%s", got, want, r.log)
	}
}
