// Package fixedca is an authority whose signing costs nothing: it answers every
// request with the same chain, so that what is measured is the way to it.
package fixedca

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Settings are what it answers.
type Settings struct {
	Chain string `json:"chain" jsonschema:"PEM, leaf first"`
	Roots string `json:"roots" jsonschema:"PEM"`
}

// CA answers with one certificate.
type CA struct{ reply ca.Certificate }

// Open returns the authority.
func Open(_ context.Context, s Settings) (CA, error) {
	return CA{ca.Certificate{Chain: []byte(s.Chain), Roots: []byte(s.Roots)}}, nil
}

// CSRSign answers without a look at the request.
func (c CA) CSRSign(context.Context, ca.SignRequest) (ca.Certificate, error) { return c.reply, nil }
