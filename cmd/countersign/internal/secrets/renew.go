package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/internal/transport"
)

const (
	maxReply     = 8 << 20 // bytes
	progressEach = 200 * time.Millisecond
)

func renewCommand(env environ.Vars) *cobra.Command {
	in := settings.Flags{Env: env, Installed: settings.InstalledFile}
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "renew NAME", Short: "Have the agent request a new key and certificate for a secret now",
		Long: `Have the agent request a new key and certificate for a secret now, as after a leak of the
key, and wait until it serves them. The old ones are served until then. The agent answers its own
user and root, at its status.address, which has to be a Unix socket (unix:PATH), and logs who
asked. Revoke the old certificate at the CA.

One request at a time is in flight, and the wait after a failure applies: then the command fails
with the time of the next attempt.

The exit code is 1 if no new certificate is served within the timeout.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Wrong(errors.New("name one secret, such as default"))
			}
			return nil
		},
		ValidArgsFunction: in.CompleteSecrets,
	}
	in.AddFlags(cmd, "status.address")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the new certificate")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := newPage(&in)
		if err != nil {
			return cli.Wrong(err)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		return p.renew(ctx, cmd.OutOrStdout(), args[0])
	}
	return cmd
}

// page is an agent's status page.
type page struct {
	client  *http.Client
	address string
}

func newPage(in *settings.Flags) (*page, error) {
	c, err := in.ReadPartly()
	if err != nil {
		return nil, err
	}
	if c.Status.Address == "" {
		return nil, errors.New("no status.address is configured: set it to unix:PATH, or pass --status-address")
	}
	at, err := unixsocket.ParseAddress(c.Status.Address)
	if err != nil {
		return nil, fmt.Errorf("status.address is %.256q: %w", c.Status.Address, err)
	}
	return &page{&http.Client{Transport: transport.Local(at)}, c.Status.Address}, nil
}

// state is a secret in /status.
type state struct {
	Name      string `json:"name"`
	Rotations int    `json:"rotations"`
	Item      *struct {
		Serial      string    `json:"serial"`
		Fingerprint string    `json:"fingerprint"`
		NotAfter    time.Time `json:"not_after"`
	} `json:"item"`
	Failure *struct {
		Text    string    `json:"text"`
		At      time.Time `json:"at"`
		NextTry time.Time `json:"next_try"`
	} `json:"failure"`
}

// renew asks for a renewal and returns when the agent serves another certificate.
func (p *page) renew(ctx context.Context, w io.Writer, name string) error {
	before, err := p.state(ctx, name)
	if err != nil {
		return err
	}
	if _, err := p.ask(ctx, http.MethodPost, "/renew?secret="+url.QueryEscape(name), http.StatusAccepted); err != nil {
		return err
	}
	for {
		now, err := p.state(ctx, name)
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("%s: no new certificate within the timeout; the agent goes on", text.Clean(name))
		case err != nil:
			return err
		case now.Rotations > before.Rotations && now.Item != nil:
			_, err := fmt.Fprintf(w, "%s is renewed: serial %s, SHA-256 %s, until %s\n", text.Clean(name), text.Clean(now.Item.Serial),
				text.Clean(now.Item.Fingerprint), now.Item.NotAfter.UTC().Format(time.RFC3339))
			return err
		case now.Failure != nil && (before.Failure == nil || now.Failure.At.After(before.Failure.At)):
			return fmt.Errorf("%s: %s; the agent tries again at %s", text.Clean(name), text.Clean(now.Failure.Text), now.Failure.NextTry.UTC().Format(time.RFC3339))
		}
		select {
		case <-ctx.Done():
		case <-time.After(progressEach):
		}
	}
}

func (p *page) state(ctx context.Context, name string) (s state, err error) {
	text, err := p.ask(ctx, http.MethodGet, "/status", http.StatusOK)
	if err != nil {
		return s, err
	}
	var report struct {
		Secrets []state `json:"secrets"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return s, fmt.Errorf("%s does not answer as an agent: %w", p.address, err)
	}
	for _, one := range report.Secrets {
		if one.Name == name {
			return one, nil
		}
	}
	return state{Name: name}, nil // whether it is known is the agent's to say
}

func (p *page) ask(ctx context.Context, method, path string, want int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("failed to ask the agent at %s: %w", p.address, err)
	}
	defer func() { _ = answer.Body.Close() }() // only read, so the error does not matter
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxReply))
	if err == nil && answer.StatusCode != want {
		err = fmt.Errorf("the agent at %s answered %s: %s", p.address, answer.Status, text.Clean(string(body)))
	}
	return body, err
}
