package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"text/template"
	"time"

	"github.com/countersign-dev/countersign/internal/test/pages"
)

// demandEnvoy is a stock Envoy that asks the agent for each name of a client.
type demandEnvoy struct {
	cmd *exec.Cmd
	tlsServer
}

func (b *bench) startDemandEnvoy(ctx context.Context, program, socket string, workers int) (*demandEnvoy, error) {
	dir, err := os.MkdirTemp(b.dir, "envoy")
	if err != nil {
		return nil, err
	}
	bootstrap, err := template.ParseFiles("test/e2e/envoy/ondemand.yaml")
	if err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(dir, "envoy.yaml"))
	if err != nil {
		return nil, err
	}
	admin := filepath.Join(dir, "admin")
	err = bootstrap.Execute(file, map[string]string{"Socket": socket, "APIType": "DELTA_GRPC", "Admin": admin})
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	e := &demandEnvoy{cmd: asUser(exec.Command(program, "-c", file.Name(), "--disable-hot-restart", "--concurrency", strconv.Itoa(workers), "--log-level", "error"), uint32(os.Geteuid()))}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	if e.address, err = listenerOf(ctx, admin); err != nil {
		end(e.cmd)
	}
	return e, err
}

// listenerOf returns where an Envoy listens, once it does.
func listenerOf(ctx context.Context, admin string) (string, error) {
	client := pages.Client("unix:" + admin)
	var page struct {
		Listeners []struct {
			Address struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		resp, err := client.Get("http://envoy/listeners?format=json")
		if err != nil {
			continue
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		if err == nil && len(page.Listeners) > 0 && page.Listeners[0].Address.Socket.Port > 0 {
			return fmt.Sprintf("127.0.0.1:%d", page.Listeners[0].Address.Socket.Port), nil
		}
	}
	return "", fmt.Errorf("envoy does not listen: %w", ctx.Err())
}

// tlsServer is where a server accepts TLS connections.
type tlsServer struct{ address string }

// shake makes a handshake with a name.
func (t tlsServer) shake(ctx context.Context, name string) error {
	_, err := t.certificate(ctx, name)
	return err
}

// certificate makes a handshake with a name and returns the server's certificate.
func (t tlsServer) certificate(ctx context.Context, name string) (*x509.Certificate, error) {
	dialer := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}} // its certificate is not the figure
	conn, err := dialer.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, fmt.Errorf("handshake with %s: %w", name, err)
	}
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], conn.Close()
}

// reach returns how long a client takes that repeats its handshake after half a second, until it
// succeeds.
func (t tlsServer) reach(ctx context.Context, name string) (time.Duration, error) {
	for began := time.Now(); ; {
		try, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		err := t.shake(try, name)
		cancel()
		if err == nil {
			return time.Since(began), nil
		}
		if ctx.Err() != nil {
			return 0, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// shakeUntil makes 50 handshakes a second with names that the server holds, until ctx ends.
func (t tlsServer) shakeUntil(ctx context.Context, name func(i int) string) (took []time.Duration, err error) {
	for i := 0; ctx.Err() == nil; i++ {
		began := time.Now()
		if err := t.shake(context.WithoutCancel(ctx), name(i)); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	slices.Sort(took)
	return took, nil
}
