package spiresecret_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/revocation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// listOf returns a revocation list of the root, as SPIRE sends it and as it is served.
func listOf(t *testing.T, root *certtest.Pair, number int64) (der, pem []byte) {
	t.Helper()
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(number), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
	}, root.Cert, root.Key)
	must(t, err)
	list, err := x509.ParseRevocationList(der)
	must(t, err)
	return der, pki.EncodeCRLs([]*x509.RevocationList{list})
}

// dressed returns the reader's ROOTCA with the lists that the Workload API sends.
func (r *reader) dressed() (*secret.Item, []secret.Status) {
	r.t.Helper()
	set, err := revocation.New(revocation.Config{
		Bundles:  []revocation.Bundle{{Name: "ROOTCA", Feeds: []revocation.Feed{{Name: "spire", Follow: r.Revocations}}}},
		NoEvents: true, Log: r.log.Logger(),
	}, r)
	if err != nil {
		r.t.Fatal(err)
	}
	defer set.Close()
	synctest.Wait()
	item, err := set.Over(r).Peek(agent, "ROOTCA")
	if err != nil {
		r.t.Log(err)
	}
	return item, set.Complete(r.Status())
}

func TestListsOfWorkloadAPIAreServedOnceChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, stranger := certtest.Root(t), certtest.Root(t)
		first, want := listOf(t, root, 1)
		foreign, _ := listOf(t, stranger, 9)
		forged := bytes.Clone(first)
		forged[len(forged)-1] ^= 1
		sent := of(t, root, web)
		from := sending(t, sent)
		r := reading(t, from)
		if item, _ := r.dressed(); item != nil {
			t.Error("without a list, as SPIRE sends none yet, the roots are served")
		}
		for name, lists := range map[string][][]byte{"good": {first}, "with a stranger's": {foreign, first}, "with a forged one": {forged, first}} {
			next := &reply{Svids: sent.Svids, Crl: lists}
			from.send(next)
			pass(time.Second)
			if item, _ := r.dressed(); item == nil || !bytes.Equal(item.CRLs, want) {
				t.Errorf("%s: the list is not served", name)
			}
		}
		from.send(&reply{Svids: sent.Svids, Crl: [][]byte{forged}})
		pass(time.Second)
		if item, _ := r.dressed(); item != nil {
			t.Error("a forged list is served")
		}
	})
}

func TestMalformedListOfWorkloadAPIIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		good, _ := listOf(t, root, 1)
		for name, lists := range map[string][][]byte{
			"no list":  {good, []byte("no list")},
			"empty":    {good, nil},
			"too many": manyOf(good, pki.MaxCRLs+2),
		} {
			r := reading(t, sending(t, &reply{Svids: of(t, root, web).Svids, Crl: lists}))
			item, all := r.dressed()
			if item != nil {
				t.Errorf("%s: served", name)
			}
			f := all[0].Revocation.Failure // ROOTCA comes before default
			if f == nil || !strings.HasPrefix(f.Text, "spire: ") {
				t.Errorf("%s: the failure is %+v", name, f)
			}
		}
	})
}

func manyOf(list []byte, n int) (all [][]byte) {
	for range n {
		all = append(all, list)
	}
	return all
}

// A list may change while the roots do not, which notifies none of the roots' watchers.
func TestNewListOfWorkloadAPIIsPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := certtest.Root(t)
		first, _ := listOf(t, root, 1)
		second, want := listOf(t, root, 2)
		sent := of(t, root, web)
		sent.Crl = [][]byte{first}
		from := sending(t, sent)
		r := reading(t, from)
		set, err := revocation.New(revocation.Config{
			Bundles:  []revocation.Bundle{{Name: "ROOTCA", Feeds: []revocation.Feed{{Name: "spire", Follow: r.Revocations}}}},
			NoEvents: true, Poll: time.Hour, Log: r.log.Logger(),
		}, r)
		must(t, err)
		defer set.Close()
		synctest.Wait()
		pushes := make(chan string, 10)
		stop, err := set.Over(r).Watch(agent, "ROOTCA", func(name string) { pushes <- name })
		must(t, err)
		defer stop()
		from.send(&reply{Svids: sent.Svids, Crl: [][]byte{second}})
		pass(time.Second)
		if len(pushes) != 1 {
			t.Errorf("%d pushes", len(pushes))
		}
		if item, err := set.Over(r).Peek(agent, "ROOTCA"); err != nil || !bytes.Equal(item.CRLs, want) {
			t.Errorf("the new list is not served: %v", err)
		}
		from.stop()
		pass(10 * time.Minute)
		if item, err := set.Over(r).Peek(agent, "ROOTCA"); err != nil || !bytes.Equal(item.CRLs, want) {
			t.Errorf("the list goes with SPIRE's agent: %v", err)
		}
	})
}
