// Package secrets implements "countersign secrets": it shows what an agent serves, as an
// SDS client of the agent's socket, and has it renewed. main adds its [Command]; nothing is kept.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/settings"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/sds"
)

// query has what "get" and "watch" have in common.
type query struct {
	settings settings.Flags
	cmd      *cobra.Command
	output   *string
	showKey  bool
	socket   string
	names    []string
}

func (q *query) addFlags(cmd *cobra.Command) {
	q.cmd = cmd
	q.settings.AddFlags(cmd, "socket.path")
	cmd.Flags().Lookup("socket").Usage = "the agent's unix `socket` (default: that of the configuration, or of /etc/countersign/countersign.yaml)"
	q.output = cli.Output(cmd, "table", "json")
	cmd.Flags().BoolVar(&q.showKey, "show-key", false, "print the private key, too")
	cmd.ValidArgsFunction = q.settings.CompleteSecrets
}

// open finds out which socket and which secrets are asked for.
func (q *query) open(names []string) error {
	if q.names = names; len(names) == 0 {
		q.names = []string{config.DefaultSecret, config.RootCA}
	}
	if flag := q.cmd.Flags().Lookup("socket"); flag.Changed {
		var err error
		if q.socket, err = unixsocket.ParsePath(flag.Value.String()); err != nil {
			return cli.Wrong(fmt.Errorf("--socket is %.256q: %w", flag.Value, err))
		}
		return nil
	}
	c, err := q.settings.ReadPartly()
	if err != nil {
		return cli.Wrong(err)
	}
	if q.socket = c.Socket.Path; !c.Socket.Enabled {
		q.socket = c.Gateway.Socket
	}
	return nil
}

func (q *query) dial() (*grpc.ClientConn, secretv3.SecretDiscoveryServiceClient, error) {
	conn, err := grpc.NewClient("unix:"+q.socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithMaxHeaderListSize(64<<10))
	if err != nil {
		return nil, nil, cli.Wrong(fmt.Errorf("socket %q: %w", q.socket, err))
	}
	return conn, secretv3.NewSecretDiscoveryServiceClient(conn), nil
}

// request has a node that package status leaves out of what proxies ask for.
func (q *query) request() *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: q.names, Node: &corev3.Node{Id: "countersign-secrets"}}
}

// Command returns "secrets" with its subcommands.
func Command(env environ.Vars) *cobra.Command {
	return cli.Group("secrets", "Show what an agent serves, as a client of its socket, and renew it", getCommand(env), watchCommand(env), renewCommand(env))
}

func getCommand(env environ.Vars) *cobra.Command {
	q := query{settings: settings.Flags{Env: env, Installed: settings.InstalledFile}}
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "get [NAME…]", Short: "Show secrets (by default: default and ROOTCA), waiting until they are ready",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := q.open(names); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return q.get(ctx, cmd.OutOrStdout(), timeout)
		},
	}
	q.addFlags(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for secrets")
	return cmd
}

func (q *query) get(ctx context.Context, w io.Writer, timeout time.Duration) error {
	conn, client, err := q.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := client.FetchSecrets(ctx, q.request())
	if err != nil {
		return q.whyNot(err, timeout)
	}
	shown, err := readAnswer(answer, q.showKey)
	if err != nil {
		return err
	}
	if _, err := newPrinter(w, *q.output).print(shown); err != nil {
		return err
	}
	return q.missing(shown)
}

func (q *query) whyNot(err error, timeout time.Duration) error {
	names := text.Clean(strings.Join(q.names, ", "))
	switch status.Code(err) {
	case codes.NotFound:
		return fmt.Errorf("the agent does not serve %s", names)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: not all ready within %s", names, timeout)
	case codes.PermissionDenied:
		return fmt.Errorf("the agent at %s denies access to this user: %s", q.socket, text.Clean(status.Convert(err).Message()))
	case codes.Unavailable:
		return fmt.Errorf("no agent is listening on %s: %s", q.socket, text.Clean(status.Convert(err).Message()))
	}
	return fmt.Errorf("%s: %s", status.Code(err), text.Clean(status.Convert(err).Message()))
}

func (q *query) missing(shown []secretShown) error {
	served := make(map[string]bool, len(shown))
	for _, s := range shown {
		served[s.Name] = true
	}
	var missing []string
	for _, name := range q.names {
		if !served[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the agent does not serve %s", text.Clean(strings.Join(missing, ", ")))
	}
	return nil
}

func watchCommand(env environ.Vars) *cobra.Command {
	q := query{settings: settings.Flags{Env: env, Installed: settings.InstalledFile}}
	var limit time.Duration
	var count int
	var filter cli.Filter
	cmd := &cobra.Command{
		Use: "watch [NAME…]", Short: "Show secrets (by default: default and ROOTCA) and every rotation",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := filter.Check(*q.output); err != nil {
				return cli.Wrong(err)
			}
			if err := q.open(names); err != nil {
				return err
			}
			ctx := cmd.Context()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			p := newPrinter(cmd.OutOrStdout(), *q.output)
			p.filter = filter
			return q.watch(ctx, p, cmd.ErrOrStderr(), count)
		},
	}
	q.addFlags(cmd)
	cmd.Flags().DurationVar(&limit, "for", 0, "exit after this time (default: never)")
	cmd.Flags().IntVar(&count, "count", 0, "exit after this many updates in the output (default: never)")
	filter.AddFlag(cmd, "a name, an event such as rotated, an identity")
	return cmd
}

var errEnough = errors.New("enough updates")

// watch prints updates until ctx ends, which is a success, and reconnects to an agent
// that went away.
func (q *query) watch(ctx context.Context, p *printer, notices io.Writer, count int) error {
	conn, client, err := q.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	wait := time.Duration(0)
	for {
		err := q.follow(ctx, client, p, &count, func() { wait = 0 })
		if errors.Is(err, errEnough) || ctx.Err() != nil {
			return nil
		}
		if status.Code(err) == codes.PermissionDenied {
			return q.whyNot(err, 0)
		}
		wait = min(max(100*time.Millisecond, 2*wait), 5*time.Second)
		fmt.Fprintf(notices, "countersign: %v; retrying in %s\n", q.whyNot(err, 0), wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// follow prints and acknowledges the updates of one stream.
func (q *query) follow(ctx context.Context, client secretv3.SecretDiscoveryServiceClient, p *printer, count *int, alive func()) error {
	stream, err := client.StreamSecrets(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(q.request()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the agent closed the stream")
		}
		if err != nil {
			return err
		}
		alive()
		shown, err := readAnswer(answer, q.showKey)
		if err != nil {
			return err
		}
		printed, err := p.print(shown)
		if err != nil {
			return err
		}
		ack := &discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: q.names, VersionInfo: answer.VersionInfo, ResponseNonce: answer.Nonce}
		if err := stream.Send(ack); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if *count -= printed; *count <= 0 && *count+printed > 0 {
			return errEnough
		}
	}
}
