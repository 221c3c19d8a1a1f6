// Package secrets holds the commands that look at what an agent serves, as a client of
// its socket: [Command].
package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/cli"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/sdk/sds"
)

// asking are the flags that `get` and `watch` have in common.
type asking struct {
	socket, output string
	showKey        bool
	names          []string
}

func (a *asking) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.socket, "socket", config.DefaultSocket, "the agent's unix socket")
	cmd.Flags().StringVarP(&a.output, "output", "o", "table", "table or json (an object a line)")
	cmd.Flags().BoolVar(&a.showKey, "show-key", false, "print the private key, too")
}

func (a *asking) check(names []string) error {
	if a.output != "table" && a.output != "json" {
		return cli.WrongOutput(a.output, "table")
	}
	if a.names = names; len(names) == 0 {
		a.names = []string{config.DefaultSecret, config.RootCA}
	}
	return nil
}

func (a *asking) dial() (*grpc.ClientConn, secretv3.SecretDiscoveryServiceClient, error) {
	conn, err := grpc.NewClient("unix:"+a.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, cli.Wrong(fmt.Errorf("--socket is %q: %w", a.socket, err))
	}
	return conn, secretv3.NewSecretDiscoveryServiceClient(conn), nil
}

func (a *asking) request() *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: a.names, Node: &corev3.Node{Id: "countersign-secrets"}}
}

// Command makes `secrets` with what is below it.
func Command() *cobra.Command {
	return cli.Group("secrets", "Look at what an agent serves, as a client of its socket", getCommand(), watchCommand())
}

func getCommand() *cobra.Command {
	var a asking
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "get [NAME…]", Short: "Show secrets (default and ROOTCA, if none is named), and wait for those that are not ready",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := a.check(names); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return a.get(ctx, cmd.OutOrStdout(), timeout)
		},
	}
	a.flags(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait")
	return cmd
}

func (a *asking) get(ctx context.Context, w io.Writer, timeout time.Duration) error {
	conn, client, err := a.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := client.FetchSecrets(ctx, a.request())
	if err != nil {
		return a.whyNot(err, timeout)
	}
	shown, err := readAnswer(answer, a.showKey)
	if err != nil {
		return err
	}
	if err := newPrinter(w, a.output).print(shown); err != nil {
		return err
	}
	return a.missing(shown)
}

func (a *asking) whyNot(err error, timeout time.Duration) error {
	names := strings.Join(a.names, ", ")
	switch status.Code(err) {
	case codes.NotFound:
		return fmt.Errorf("the agent does not serve %.256s", names)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%.256s: not all were ready within %s", names, timeout)
	case codes.PermissionDenied:
		return fmt.Errorf("the agent at %s does not answer this user: %.256s", a.socket, status.Convert(err).Message())
	case codes.Unavailable:
		return fmt.Errorf("no agent answers at %s: %.256s", a.socket, status.Convert(err).Message())
	}
	return fmt.Errorf("%s: %.256s", status.Code(err), status.Convert(err).Message())
}

func (a *asking) missing(shown []secretShown) error {
	var missing []string
	for _, name := range a.names {
		if !slices.ContainsFunc(shown, func(s secretShown) bool { return s.Name == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the agent does not serve %.256s", strings.Join(missing, ", "))
	}
	return nil
}

func watchCommand() *cobra.Command {
	var a asking
	var limit time.Duration
	var count int
	cmd := &cobra.Command{
		Use: "watch [NAME…]", Short: "Show secrets (default and ROOTCA, if none is named) and each rotation as it comes",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := a.check(names); err != nil {
				return err
			}
			ctx := cmd.Context()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			return a.watch(ctx, newPrinter(cmd.OutOrStdout(), a.output), cmd.ErrOrStderr(), count)
		},
	}
	a.flags(cmd)
	cmd.Flags().DurationVar(&limit, "for", 0, "end after this time (default: never)")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many updates (default: never)")
	return cmd
}

var errEnough = errors.New("enough updates")

// watch prints updates until ctx ends, which is a success, and comes back to an
// agent that went away.
func (a *asking) watch(ctx context.Context, p *printer, notices io.Writer, count int) error {
	conn, client, err := a.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	wait := time.Duration(0)
	for {
		err := a.follow(ctx, client, p, &count, func() { wait = 0 })
		if errors.Is(err, errEnough) || ctx.Err() != nil {
			return nil
		}
		if status.Code(err) == codes.PermissionDenied {
			return a.whyNot(err, 0)
		}
		wait = min(max(100*time.Millisecond, 2*wait), 5*time.Second)
		fmt.Fprintf(notices, "countersign: %v; trying again in %s\n", a.whyNot(err, 0), wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// follow prints what comes on one stream, and acknowledges it.
func (a *asking) follow(ctx context.Context, client secretv3.SecretDiscoveryServiceClient, p *printer, count *int, alive func()) error {
	stream, err := client.StreamSecrets(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(a.request()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the agent ended the stream")
		}
		if err != nil {
			return err
		}
		alive()
		shown, err := readAnswer(answer, a.showKey)
		if err != nil {
			return err
		}
		if err := p.print(shown); err != nil {
			return err
		}
		// Taken as it is: this client has nothing that could refuse it.
		ack := &discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: a.names, VersionInfo: answer.VersionInfo, ResponseNonce: answer.Nonce}
		if err := stream.Send(ack); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if *count -= len(shown); *count <= 0 && *count+len(shown) > 0 {
			return errEnough
		}
	}
}
