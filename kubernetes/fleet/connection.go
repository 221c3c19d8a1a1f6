package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// connection carries all traffic to one API server. Once it is closed, clients that are
// still in use reach nothing.
type connection struct {
	config *rest.Config
	http   *http.Client
	client *kubernetes.Clientset
	dialer *connrotation.Dialer
	health *health
	budget *budget
	closed atomic.Bool
	shown  atomic.Value // ca.Token: that of the last request, possibly from a file
}

var (
	errCredential = errors.New("the API server does not accept our credential (status 401)")

	errGone     = errors.New("the cluster was removed, or its kubeconfig replaced")
	errRedirect = errors.New("the API server sent a redirect, which is not followed")
)

const (
	qps, burst = 50, 100
	protobuf   = "application/vnd.kubernetes.protobuf,application/json"
)

func connect(config *rest.Config, limits Limits, log *slog.Logger) (*connection, error) {
	c := &connection{config: rest.CopyConfig(config), budget: newBudget(limits)}
	c.health = newHealth(c.clean, log)
	c.prepare()
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return nil, err
	}
	own := *client // it may be http.DefaultClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return errRedirect }
	c.http = &own
	if c.client, err = kubernetes.NewForConfigAndClient(c.config, c.http); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *connection) prepare() {
	dial := c.config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	c.dialer = connrotation.NewDialer(dial)
	c.config.Dial = c.dial
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &gate{c, next} })
	c.config.WarningHandlerWithContext = rest.NoWarnings{} // they would go to the process log
	switch {
	case c.budget.limited():
		c.config.AcceptContentTypes, c.config.ContentType = onlyJSON, onlyJSON
	case c.config.AcceptContentTypes == "":
		c.config.AcceptContentTypes = protobuf
	}
	if c.config.QPS == 0 {
		c.config.QPS, c.config.Burst = qps, burst
	}
}

func (c *connection) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, network, address)
	if err == nil && c.closed.Load() { // close may have missed it
		_ = conn.Close()
		return nil, errGone
	}
	return conn, err
}

// close closes open connections; dial opens no new ones.
func (c *connection) close() {
	c.closed.Store(true)
	c.dialer.CloseAll()
}

// server returns the API's address, with the path a proxy in front may need.
func (c *connection) server() string {
	address, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return c.config.Host
	}
	return strings.TrimSuffix(address.String(), "/")
}

// clean sanitizes an error for the log: a server may echo our credential.
func (c *connection) clean(err error) string {
	shown, _ := c.shown.Load().(ca.Token)
	return text.Redact(err.Error(), shown, ca.Token(c.config.BearerToken), ca.Token(c.config.Password))
}

// gate is the innermost transport. It reports the connection's health itself because
// client-go takes a server that hangs up for the end of a watch.
type gate struct {
	connection *connection
	next       http.RoundTripper
}

func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok {
		g.connection.shown.Store(ca.Token(token))
	}
	reply, err := g.next.RoundTrip(req)
	if err == nil && g.connection.budget.limited() {
		err = g.connection.bound(req, reply)
	}
	if err != nil {
		reply = nil
	}
	g.connection.judge(req, reply, err)
	return reply, err
}

// judge reports what a response says of the cluster. Reviews are told apart: the watches may go
// on when the API server cannot answer them.
func (c *connection) judge(req *http.Request, reply *http.Response, err error) {
	review := req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "reviews")
	ended := req.Context().Err()
	switch {
	case errors.Is(ended, context.DeadlineExceeded) && review:
		c.health.note("reviews", ended)
	case ended != nil: // the caller has left
	case err == nil && reply.StatusCode == http.StatusUnauthorized:
		c.health.note("connection", errCredential)
	default:
		c.health.note("connection", err)
		if err == nil && review {
			c.health.note("reviews", reviewFault(reply.StatusCode))
		}
	}
}

// reviewFault returns an error if reviews are not answered.
func reviewFault(status int) error {
	if status == http.StatusForbidden || status >= http.StatusInternalServerError {
		return fmt.Errorf("the API server answers with status %d", status)
	}
	return nil
}

// WrappedRoundTripper lets client-go find the transport to close its connections.
func (g *gate) WrappedRoundTripper() http.RoundTripper { return g.next }
