// Package pages gets the pages of programs for tests, over a connection for each request.
package pages

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Client returns a client that asks at an address, host:port or unix:PATH, whatever the host in a URL.
func Client(address string) *http.Client {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	return &http.Client{Transport: transport, Timeout: 2 * time.Minute}
}

// Get returns the status and the text of a page; 0 and the error if there is no answer.
func Get(client *http.Client, path string) (code int, text string) {
	answer, err := client.Get("http://localhost" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}
