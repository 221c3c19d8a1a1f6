package spiresecret_test

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"

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

		changed := make(chan string, 1)
		stop, err := r.Watch(agent, "spiffe://example.com", func(name string) { changed <- name })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		from.send(of(t, own, web))
		<-changed
		r.fails("spiffe://example.com", secret.ErrUnknown)
		synctest.Wait()
		r.domainsAre("example.org")
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		r.fails("spiffe://example.org", secret.ErrClosed)
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
