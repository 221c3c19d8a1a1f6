package spiresecret

import (
	"bytes"
	"context"
	"encoding/pem"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Revocations calls take with the revocation lists that the Workload API sends, at first and when
// they change, until ctx ends: PEM blocks "X509 CRL". They are as they came; package revocation
// checks them. Nothing means that it sends none; what it sent stays while it is away.
func (s *Source) Revocations(ctx context.Context, take func(lists []byte, err error)) {
	var told []byte
	for {
		s.mu.Lock()
		lists, changed := s.lists, s.listed
		s.mu.Unlock()
		if !bytes.Equal(lists, told) {
			told = lists
			take(lists, nil)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// list keeps the lists of a reply, DER.
func (s *Source) list(ders [][]byte) {
	lists := encode(ders)
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(lists, s.lists) {
		return
	}
	s.lists = lists
	close(s.listed)
	s.listed = make(chan struct{})
}

// encode returns no more than is one list too many, which its reader then refuses by name: empty
// lists cost the sender nothing, and each is a block.
func encode(ders [][]byte) []byte {
	var out bytes.Buffer
	for _, der := range ders[:min(len(ders), pki.MaxCRLs+1)] {
		_ = pem.Encode(&out, &pem.Block{Type: "X509 CRL", Bytes: der}) // a bytes.Buffer takes all
	}
	return out.Bytes()
}
