package secret

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// keptName is the content of the record of a secret that a Manager does not hold.
type keptName struct {
	Version int        `json:"version"`
	Pair    *keptPair  `json:"pair,omitempty"`
	Order   *keptOrder `json:"order,omitempty"`
}

// keptOrder is an [Order] that may have been sent.
type keptOrder struct {
	Authority string      `json:"authority"`
	ID        string      `json:"id"`
	KeyType   pki.KeyType `json:"key_type"`
	Key       []byte      `json:"key"` // PEM
	CSR       []byte      `json:"csr"` // PEM
}

// Keep returns the record of a secret that the Manager does not hold, for [Manager.Restore]: the
// item that is held and the order that may be sent to the first authority of spec. Either may be
// nil. Experimental.
func Keep(spec Spec, item *Item, o *Order) (Record, error) {
	spec = spec.withDefaults()
	kept, by := keptName{Version: recordVersion}, spec.Authorities[0]
	if o != nil {
		key, err := pki.EncodeKey(o.order.key)
		if err != nil {
			return Record{}, err
		}
		keyType, _ := pki.ParseKeyType(string(o.spec.KeyType)) // a key of it was made
		kept.Order = &keptOrder{Authority: by, ID: o.order.id, KeyType: keyType, Key: key, CSR: o.order.csr}
	}
	if item != nil {
		pair := spec.keep(item)
		kept.Pair, by = &pair, item.Authority
	}
	return Record{Identity: spec.Identity.String(), Authority: by, Content: encode(kept)}, nil
}

// Restore returns what [Keep] recorded: the item, if it would pass as a reply to a request for spec
// made now, and the order, if it may still be sent to the first authority of spec. An error is
// about the item alone. It is [ca.Unavailable] while the authority has no roots to verify the item
// with, and while the clock is behind the time when it was issued; otherwise the item cannot be used.
// Experimental.
func (m *Manager) Restore(spec Spec, r Record) (*Item, *Order, error) {
	spec = spec.withDefaults()
	if want := spec.Identity.String(); r.Identity != want {
		return nil, nil, fmt.Errorf("the record is of identity %.256q, not %.256q", r.Identity, want)
	}
	var kept keptName
	if json.Unmarshal(r.Content, &kept) != nil {
		return nil, nil, errContent
	}
	if err := checkVersion(kept.Version); err != nil {
		return nil, nil, err
	}
	order := kept.Order.restore(spec)
	if kept.Pair == nil {
		return nil, order, nil
	}
	by := m.current.Load().authorities[r.Authority]
	if by == nil {
		return nil, order, fmt.Errorf("it was signed by authority %.256q, which is not configured", r.Authority)
	}
	if by.bundle.Load().Len() == 0 {
		return nil, order, ca.Errorf(ca.Unavailable, "authority %q has no roots yet", r.Authority)
	}
	a := &attempt{plan: plan{spec: spec}, leaf: by.standIn, by: by}
	if err := a.restore(*kept.Pair); err != nil {
		if now := by.now(); kept.Pair.Issued.After(now) {
			err = ca.Errorf(ca.Unavailable, "it was issued at %s, and the clock shows %s: %w", clock.Stamp(kept.Pair.Issued), clock.Stamp(now), err)
		}
		if Untrusted(err) {
			by.refresh() // the machine that stored it may have newer roots
		}
		return nil, order, err
	}
	by.recordIssued(a.chain.Ends)
	return a.item, order, nil
}

// Untrusted reports whether an error of [Manager.Restore] means that the chain leads to no root of the
// authority. The Manager then asks the authority for its roots, at most once a second. Experimental.
func Untrusted(err error) bool {
	failed, ok := errors.AsType[*pki.CheckError](err)
	return ok && failed.Check == "chain"
}

// KeptPair returns the certificate chain and the key, PEM with the leaf first, of a record that [Keep]
// made; none if it has an order alone. It verifies neither. Experimental.
func KeptPair(r Record) (chain, key []byte, err error) {
	var kept keptName
	if json.Unmarshal(r.Content, &kept) != nil {
		return nil, nil, errContent
	}
	if err := checkVersion(kept.Version); err != nil || kept.Pair == nil {
		return nil, nil, err
	}
	return kept.Pair.Chain, kept.Pair.Key, nil
}

// restore returns the order if it is one for spec; nil if not.
func (k *keptOrder) restore(spec Spec) *Order {
	want, _ := pki.ParseKeyType(string(spec.KeyType)) // the caller checked it
	if k == nil || k.Authority != spec.Authorities[0] || k.KeyType != want {
		return nil
	}
	key, err := pki.ParseKey(k.Key)
	if err != nil {
		return nil
	}
	csr, err := pki.ParseCSR(k.CSR)
	if err != nil || !pki.SameKey(key.Public(), csr.PublicKey) {
		return nil
	}
	if asks, err := pki.IdentityOfCSR(csr); err != nil || !asks.Equal(spec.Identity) {
		return nil
	}
	return &Order{spec: spec, order: &order{id: k.ID, key: key, csr: k.CSR}}
}
