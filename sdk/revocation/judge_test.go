package revocation_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/revocation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// stalled is a source that stops the Set in the middle of a judgement.
type stalled struct {
	secret.Source
	armed  atomic.Bool
	inside chan struct{}
	goOn   chan struct{}
}

func (s *stalled) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	if name == "chain" && s.armed.CompareAndSwap(true, false) {
		close(s.inside)
		<-s.goOn
	}
	return s.Source.Peek(caller, name)
}

func TestLastListsAreServedWhileNewOnesAreJudged(t *testing.T) {
	b := &bundle{t: t, shelf: secrettest.New(), file: filepath.Join(t.TempDir(), "crl.pem")}
	authority, other := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	b.roots(authority)
	lists := authority.CRLs(catest.CRL{})
	b.write(lists...)
	source := &stalled{Source: b.shelf, inside: make(chan struct{}), goOn: make(chan struct{})}
	set, err := revocation.New(revocation.Config{
		Bundles: []revocation.Bundle{{Name: "ROOTCA", Files: []string{b.file}, Chains: []string{"chain"}}}, Log: b.log.Logger(),
	}, source)
	must(t, err)
	defer set.Close()
	b.set, b.Source = set, set.Over(source)
	b.has("at first", lists...)

	source.armed.Store(true)
	b.roots(authority, other)
	<-source.inside
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		b.has("while lists are judged", lists...)
		b.state()
	}()
	select {
	case <-answered:
	case <-time.After(2 * time.Minute):
		t.Error("Peek waits for the judgement")
	}
	close(source.goOn)
	<-answered
}
