// Command countersign-provider-moody is the file provider with a switch, for
// tests: while the file "outage" exists, its authority cannot be reached.
package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

type settings struct {
	Dir    string `json:"dir" jsonschema:"the folder with the CA"`
	Outage string `json:"outage" jsonschema:"the file that is there while the CA is away"`
}

// moody is an authority that is away at times.
type moody struct {
	*fileca.CA
	outage string
}

func open(ctx context.Context, s settings) (moody, error) {
	authority, err := fileca.Open(ctx, fileca.Settings{Dir: s.Dir})
	return moody{authority, s.Outage}, err
}

// CSRSign answers Unavailable during an outage.
func (m moody) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if _, err := os.Stat(m.outage); !errors.Is(err, fs.ErrNotExist) {
		return ca.Certificate{}, ca.Errorf(ca.Unavailable, "the authority is away")
	}
	return m.CA.CSRSign(ctx, req)
}

func main() { provider.Main("moody", "test", open) }
