package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// table is a database with the one table, in memory.
type table struct {
	mu   sync.Mutex
	rows [][]driver.Value
	away bool
	hang bool // until the query is canceled
}

func (t *table) set(away bool, rows ...[]driver.Value) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows, t.away = rows, away
}

func (t *table) Connect(context.Context) (driver.Conn, error) { return connection{t}, nil }
func (t *table) Driver() driver.Driver                        { return nil }

type connection struct{ *table }

func (connection) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (connection) Close() error                        { return nil }
func (connection) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }

func (c connection) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	if c.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return nil, errors.New("the database is away")
	}
	return &result{c.rows}, nil
}

type result struct{ rows [][]driver.Value }

func (*result) Columns() []string { return []string{"name", "chain", "private_key"} }
func (*result) Close() error      { return nil }
func (r *result) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(dest, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

// row is a new certificate.
func row(t *testing.T, name string) []driver.Value {
	t.Helper()
	secrets, err := secret.Obtain(t.Context(), catest.NewCA(catest.Options{}), "spiffe://example.org/"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer secrets.Close()
	item, err := secrets.Peek(secret.Caller{}, "default")
	if err != nil {
		t.Fatal(err)
	}
	return []driver.Value{name, item.Chain, item.Key}
}

func TestEnvoyGetsWhatTheTableHas(t *testing.T) {
	rows := &table{}
	first, second := row(t, "web"), row(t, "web")
	rows.set(false, first)
	stream := open(t, start(t, rows))
	if got := next(t, stream); got != leafOf(t, first) {
		t.Errorf("got %s", got)
	}
	rows.set(true) // it is away: what was read is served
	rows.set(false, []driver.Value{"web", second[1], first[2]})
	rows.set(false, second)
	if got := next(t, stream); got != leafOf(t, second) {
		t.Errorf("got %s", got)
	}
}

func TestTableIsReadAsItIs(t *testing.T) {
	rows := &table{}
	db := sql.OpenDB(rows)
	defer db.Close()
	var secrets secret.Map
	known := map[string]bool{}
	first, second := row(t, "web"), row(t, "web")
	for _, step := range []struct {
		what string
		away bool
		rows [][]driver.Value
		want []driver.Value // nil: unknown
	}{
		{"empty", false, nil, nil},
		{"a row", false, [][]driver.Value{first}, first},
		{"away", true, nil, first},
		{"the key of another", false, [][]driver.Value{{"web", second[1], first[2]}}, first},
		{"replaced", false, [][]driver.Value{second, row(t, "app")}, second},
		{"deleted", false, nil, nil},
	} {
		rows.set(step.away, step.rows...)
		if err := read(t.Context(), db, &secrets, known); (err != nil) != step.away {
			t.Errorf("%s: %v", step.what, err)
		}
		item, err := secrets.Peek(secret.Caller{}, "web")
		switch {
		case step.want == nil && !errors.Is(err, secret.ErrUnknown):
			t.Errorf("%s: %v, %v", step.what, item, err)
		case step.want != nil && (err != nil || string(item.Chain) != string(step.want[1].([]byte))):
			t.Errorf("%s: %v, %v", step.what, item, err)
		}
	}
}

func TestQueryThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(&table{hang: true})
		defer db.Close()
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		before := time.Now()
		err := read(ctx, db, &secret.Map{}, map[string]bool{})
		if took := time.Since(before); !errors.Is(err, context.DeadlineExceeded) || took != queryTimeout {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// start serves the table until the test ends and returns the socket.
func start(t *testing.T, rows *table) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "db") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "sds.sock")
	ctx, stop := context.WithCancel(context.Background())
	db := sql.OpenDB(rows)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, db, socket, 10*time.Millisecond) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, db.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return socket
}

// open asks for "web" as Envoy does.
func open(t *testing.T, socket string) secretv3.SecretDiscoveryService_StreamSecretsClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(func() { cancel(); _ = conn.Close() })
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	ask(t, stream, &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "test"}, TypeUrl: sds.TypeURL, ResourceNames: []string{"web"}})
	return stream
}

func ask(t *testing.T, stream secretv3.SecretDiscoveryService_StreamSecretsClient, request *discoveryv3.DiscoveryRequest) {
	t.Helper()
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
}

// next acknowledges the next answer with a certificate and returns the PEM block of its leaf.
func next(t *testing.T, stream secretv3.SecretDiscoveryService_StreamSecretsClient) string {
	t.Helper()
	for {
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		ask(t, stream, &discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: []string{"web"}, VersionInfo: answer.VersionInfo, ResponseNonce: answer.Nonce})
		for _, resource := range answer.Resources {
			var s tlsv3.Secret
			if err := resource.UnmarshalTo(&s); err != nil {
				t.Fatal(err)
			}
			return leaf(s.GetTlsCertificate().GetCertificateChain().GetInlineBytes())
		}
	}
}

func leafOf(t *testing.T, row []driver.Value) string {
	t.Helper()
	return leaf(row[1].([]byte))
}

func leaf(chain []byte) string {
	block, _ := pem.Decode(chain)
	return string(pem.EncodeToMemory(block))
}
