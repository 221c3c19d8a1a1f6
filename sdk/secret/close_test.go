package secret_test

import (
	"context"
	"crypto"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// deaf is foreign code of every kind that ignores its context.
type deaf struct {
	ca.Client
	free chan struct{}
}

func (d deaf) CSRSign(context.Context, ca.SignRequest) (ca.Certificate, error) {
	<-d.free
	return ca.Certificate{}, ca.ErrUnavailable
}
func (d deaf) Roots(context.Context) ([]byte, error)                { <-d.free; return nil, ca.ErrUnavailable }
func (d deaf) WatchRoots(context.Context, func([]byte) error) error { <-d.free; return nil }
func (d deaf) Token(context.Context) (ca.Bearer, error)             { <-d.free; return ca.Bearer{}, nil }
func (d deaf) NewKey(context.Context, string, pki.KeyType) (crypto.Signer, error) {
	<-d.free
	return nil, ca.ErrUnavailable
}
func (d deaf) Store(context.Context, string, secret.Record) error { <-d.free; return nil }
func (d deaf) Load(context.Context, string) (secret.Record, error) {
	return secret.Record{}, nil
}

func TestCloseAbandonsForeignCodeThatIgnoresItsContext(t *testing.T) {
	for name, change := range map[string]func(*secret.Config, deaf){
		"client":       func(c *secret.Config, d deaf) { c.Authorities[0].Client = signOnly{d} },
		"root source":  func(c *secret.Config, d deaf) { c.Authorities[0].Client = polled{c.Authorities[0].Client, d} },
		"root watcher": func(c *secret.Config, d deaf) { c.Authorities[0].Client = d },
		"token":        func(c *secret.Config, d deaf) { c.Authorities[0].Token = d.Token },
		"key source":   func(c *secret.Config, d deaf) { c.Keys = d },
		"storage":      func(c *secret.Config, d deaf) { c.Storage = d },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := deaf{free: make(chan struct{})}
				e := newEngine(t, func(c *secret.Config) { change(c, d) })
				synctest.Wait()
				began := time.Now()
				e.Close()
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("Close returned after %s", took)
				}
				close(d.free)
			})
		})
	}
}
