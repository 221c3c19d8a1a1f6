package rest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// send posts a form over the transport and returns the reply with its body.
func send(t *testing.T, transport *rest.Transport, url string) (status int, body string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("grant_type=x"))
	must(t, err)
	req.Header.Set("X-Own", "yes")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	content, err := io.ReadAll(resp.Body)
	must(t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(content), nil
}

func TestTransportPassesBodiesAndRedirectsThrough(t *testing.T) {
	client, root := serve(t, rest.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		_, _ = io.WriteString(w, r.Method+" "+r.Header.Get("X-Own")+" "+string(body))
	})
	url := "https://" + client.Host() + "/x"
	if _, _, err := send(t, &rest.Transport{}, url); err == nil {
		t.Error("a server outside the system's roots was trusted")
	}
	status, body, err := send(t, &rest.Transport{TLS: tlsOf(t, root)}, url)
	if err != nil || status != http.StatusTemporaryRedirect || body != "POST yes grant_type=x" {
		t.Errorf("%d, %q, %v", status, body, err)
	}
}

func TestTransportBoundsReplyAndWait(t *testing.T) {
	client, root := serve(t, rest.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			_, _ = io.ReadAll(r.Body) // else the server does not notice that the client left
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, "12345")
	})
	transport := &rest.Transport{TLS: tlsOf(t, root), MaxReply: 4, Timeout: 50 * time.Millisecond}
	if _, _, err := send(t, transport, "https://"+client.Host()+"/slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow reply: %v", err)
	}
	transport.Timeout = 0
	if _, _, err := send(t, transport, "https://"+client.Host()+"/x"); !errors.Is(err, rest.ErrTooLong) {
		t.Errorf("a long reply: %v", err)
	}
	transport.MaxReply = 5
	if _, body, err := send(t, transport, "https://"+client.Host()+"/x"); body != "12345" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
}
