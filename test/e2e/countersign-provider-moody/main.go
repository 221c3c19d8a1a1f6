// Command countersign-provider-moody is the file provider with a switch, for
// tests: while the file "outage" exists, its authority cannot be reached. And it is
// curious: it asks the agent itself for the workload's key. What the file "mood"
// names, it does once instead of signing well; as the variable HOSTILE names, it is bad
// from its start. It can count what it signs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

type settings struct {
	Dir    string `json:"dir" jsonschema:"the folder with the CA"`
	Outage string `json:"outage" jsonschema:"the file that is there while the CA is away"`
	Asks   string `json:"asks" jsonschema:"the agent's socket"`
	Mood   string `json:"mood" jsonschema:"the file with the name of a mood"`
	Accept string `json:"accept" jsonschema:"the file with the only token that is accepted, where it is there"`
	Quiet  bool   `json:"quiet,omitempty" jsonschema:"tells its roots only with certificates"`

	SelfSigned bool   `json:"self_signed,omitempty" jsonschema:"make a root if there is no CA"`
	Calls      string `json:"calls,omitempty" jsonschema:"the file that gets the ID of each request that is signed"`
}

// moody is an authority that is away at times.
type moody struct {
	*fileca.CA
	settings
}

func open(ctx context.Context, s settings) (moody, error) {
	authority, err := fileca.Open(ctx, fileca.Settings{Dir: s.Dir, SelfSigned: s.SelfSigned})
	return moody{authority, s}, err
}

// CSRSign answers Unavailable during an outage.
func (m moody) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if _, err := os.Stat(m.Outage); !errors.Is(err, fs.ErrNotExist) {
		return ca.Certificate{}, ca.Errorf(ca.Unavailable, "the authority is away")
	}
	if token, err := os.ReadFile(m.Accept); err == nil && string(token) != req.Token.Reveal() {
		return ca.Certificate{}, ca.Errorf(ca.Unauthenticated, "this token is not accepted")
	}
	if name, err := os.ReadFile(m.Mood); err == nil {
		if err := os.Remove(m.Mood); err != nil {
			return ca.Certificate{}, err
		}
		return moods[string(name)](req)
	}
	if err := m.note(req.ID); err != nil {
		return ca.Certificate{}, err
	}
	cert, err := m.CA.CSRSign(ctx, req)
	if m.Asks == "" {
		return cert, err
	}
	fmt.Fprintln(os.Stderr, "asked the agent for its key:", ask(ctx, m.Asks))
	return cert, err
}

// note writes before anything is signed, so that a kill hides no certificate.
func (m moody) note(id string) error {
	if m.Calls == "" {
		return nil
	}
	file, err := os.OpenFile(m.Calls, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, id)
	return errors.Join(err, file.Close())
}

// Roots is missing where it is quiet.
func (m moody) Roots(ctx context.Context) ([]byte, error) {
	if m.Quiet {
		return nil, ca.ErrUnimplemented
	}
	return m.CA.Roots(ctx)
}

// WatchRoots is missing where it is quiet.
func (m moody) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	if m.Quiet {
		return ca.ErrUnimplemented
	}
	return m.CA.WatchRoots(ctx, changed)
}

// ExchangeToken gives a token that tells of the one that it was made from.
func (m moody) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	return ca.ExchangedToken{AccessToken: "moody-" + req.SubjectToken, Expiry: time.Now().Add(time.Hour)}, ctx.Err()
}

// ask has the agent refuse, or else says that it did not.
func ask(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(ctx, &discoveryv3.DiscoveryRequest{ResourceNames: []string{"ROOTCA"}})
	if err == nil {
		return errors.New("THE AGENT ANSWERED")
	}
	return err
}

func main() {
	if be := hostile[os.Getenv("HOSTILE")]; be != nil {
		be()
		return
	}
	provider.Main("moody", "test", open)
}
