package e2e

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

//go:embed envoy/client.yaml
var clientBootstrap string

// startClientEnvoy starts an Envoy that passes requests on to a server, and returns where it
// listens.
func startClientEnvoy(t *testing.T, bootstrap, socket string, api apiType, server string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(server)
	mustDo(t, err)
	return runEnvoy(t, bootstrap, map[string]string{"Socket": socket, "APIType": string(api), "Server": port, "ServerID": envoyID}).address(t)
}

// askThrough asks for a page by way of an Envoy, whose error says what went wrong behind it.
func askThrough(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 500))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s: %s", resp.Status, body)
	}
	return err
}
