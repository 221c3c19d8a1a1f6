package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

const databaseName = "db.example.org"

// postgres is a server with a data folder of its own, and TLS from written files.
type postgres struct {
	*process
	agent *agent
	bin   string
	port  string
	certs string // the folder with the files
	user  *syscall.Credential
}

// startPostgres runs one as the user that Debian made for it: it refuses root.
func startPostgres(t *testing.T) *postgres {
	t.Helper()
	program, dir := programs.Foreign(t, "COUNTERSIGN_POSTGRES"), proctest.Folder(t)
	mustDo(t, os.Chmod(dir, 0o755))
	p := &postgres{bin: filepath.Dir(program), certs: filepath.Join(dir, "certs", "current"), user: userOf(t, "postgres")}
	_, p.port, _ = net.SplitHostPort(proctest.FreeAddress(t))
	data := p.initialize(t, dir)
	e := example{name: "postgresql", dir: data, paths: map[string]string{
		"/var/lib/countersign/postgresql": filepath.Join(dir, "certs"),
	}}
	runsAs := "postgres"
	if p.user == nil { // there is nobody else to give a file to
		e.paths["owner: postgres"] = fmt.Sprintf("owner: %q", strconv.Itoa(os.Getuid()))
		e.paths["group: postgres"] = fmt.Sprintf("group: %q", strconv.Itoa(os.Getgid()))
		runsAs = strconv.Itoa(os.Getuid())
	}
	e.paths[bySystemd("postgresql")] = fmt.Sprintf("reload: {signal: HUP, pid_file: %s/postmaster.pid, executable: %s, user: %q}", data, program, runsAs)
	p.agent = e.startAgent(t)
	config := e.write(t, "postgresql.conf", "port = "+p.port, "listen_addresses = '127.0.0.1'", "unix_socket_directories = ''", "fsync = off")
	writeWhole(t, filepath.Join(data, "pg_hba.conf"), []byte("hostssl all postgres all trust\n"))
	giveTo(t, p.user, data)
	p.process = startProcessAs(t, p.user, program, "-D", data, "-c", "config_file="+config)
	t.Cleanup(func() { p.stop(t, syscall.SIGINT) }) // which waits for no client
	p.log.await(t, "ready to accept connections")
	return p
}

// initialize makes a data folder.
func (p *postgres) initialize(t *testing.T, dir string) (data string) {
	t.Helper()
	data = filepath.Join(dir, "data")
	mustDo(t, os.Mkdir(data, 0o700))
	giveTo(t, p.user, data)
	initdb := startProcessAs(t, p.user, filepath.Join(p.bin, "initdb"), "-D", data, "-U", "postgres", "--no-sync", "--auth=trust")
	<-initdb.Done()
	if !initdb.cmd.ProcessState.Success() {
		t.Fatal("initdb has failed")
	}
	return data
}

// userOf returns a user of this machine; nil where the test has no right to be another.
func userOf(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	found, err := user.Lookup(name)
	mustDo(t, err)
	uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
	mustDo(t, errors.Join(uidErr, gidErr))
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// psql prepares the real client, which believes nothing but the host's name and roots.
func (p *postgres) psql(t *testing.T, host, roots string, args ...string) *process {
	t.Helper()
	address := fmt.Sprintf("host=%s hostaddr=127.0.0.1 port=%s user=postgres sslmode=verify-full sslrootcert=%s connect_timeout=%d", host, p.port, roots, int(patience.Seconds()))
	return prepareProcess(t, nil, filepath.Join(p.bin, "psql"), append([]string{"-XAtq", address}, args...)...)
}

// query returns what a client on a new connection gets to know.
func (p *postgres) query(t *testing.T, host, roots, query string) (said string, ok bool) {
	t.Helper()
	c := p.psql(t, host, roots, "-c", query)
	c.begin(t)
	<-c.Done()
	return c.log.String(), c.cmd.ProcessState.Success()
}

func (p *postgres) roots() string { return filepath.Join(p.certs, "roots.pem") }

// session is a client that stays.
type session struct {
	*process
	in    io.WriteCloser
	asked int
}

func (p *postgres) openSession(t *testing.T) *session {
	t.Helper()
	s := &session{process: p.psql(t, databaseName, p.roots())}
	in, err := s.cmd.StdinPipe()
	mustDo(t, err)
	s.in = in
	s.begin(t)
	return s
}

// backend returns the number of the process that serves the session.
func (s *session) backend(t *testing.T) string {
	t.Helper()
	s.asked++
	_, err := fmt.Fprintf(s.in, "select 'question %d', pg_backend_pid();\n", s.asked)
	mustDo(t, err)
	_, pid, _ := strings.Cut(s.log.await(t, fmt.Sprintf("question %d|", s.asked)), "|")
	return strings.TrimSpace(pid)
}

// askPostgres opens a connection as far as PostgreSQL lets the user in, and returns
// what it showed (https://www.postgresql.org/docs/15/protocol-message-formats.html).
func askPostgres(ctx context.Context, target string, config *tls.Config) (*x509.Certificate, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	const sslRequest, protocol3 = 80877103, 3 << 16
	if answer, err := exchange(conn, packet(sslRequest, "")); err != nil || answer != 'S' {
		return nil, fmt.Errorf("PostgreSQL answers %q to a request for TLS: %w", answer, err)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if answer, err := exchange(secure, packet(protocol3, "user\x00postgres\x00\x00")); err != nil || answer != 'R' {
		return nil, fmt.Errorf("PostgreSQL answers %q to its user: %w", answer, err)
	}
	return secure.ConnectionState().PeerCertificates[0], nil
}

// packet has the form of the first ones of a connection: its length, a code, a text.
func packet(code uint32, text string) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(8+len(text)))
	return append(binary.BigEndian.AppendUint32(p, code), text...)
}

// exchange sends a packet and returns the first byte of the answer.
func exchange(conn net.Conn, packet []byte) (byte, error) {
	if _, err := conn.Write(packet); err != nil {
		return 0, err
	}
	var answer [1]byte
	_, err := io.ReadFull(conn, answer[:])
	return answer[0], err
}

func TestPostgreSQLTakesEachCertificateUnderVerifyFull(t *testing.T) {
	t.Parallel()
	p := startPostgres(t)
	w := startWorkload(t, p.agent.socket, "client")
	probes := startProberBy(t, w, func(ctx context.Context) (*x509.Certificate, error) {
		return askPostgres(ctx, "127.0.0.1:"+p.port, w.tlsConfig(databaseName))
	})
	s := p.openSession(t)
	backend := s.backend(t)
	for range 3 {
		probes.awaitRotation(t)
		if said, ok := p.query(t, databaseName, p.roots(), "select ssl from pg_stat_ssl where pid = pg_backend_pid()"); !ok || said != "t\n" {
			t.Errorf("a new connection: %s", said)
		}
		if now := s.backend(t); now != backend {
			t.Errorf("the session is served by %s, before by %s", now, backend)
		}
	}
	probes.awaitHandshakes(t, 20)
	probes.noFailures(t)
	uid, gid := os.Getuid(), os.Getgid()
	if p.user != nil {
		uid, gid = int(p.user.Uid), int(p.user.Gid)
	}
	// PostgreSQL would not have started with another key's owner or mode.
	mustBelongTo(t, filepath.Join(p.certs, "key.pem"), uid, gid, 0o600)
	mustBelongTo(t, filepath.Join(p.certs, "chain.pem"), uid, gid, 0o644)
	p.refusesWhatIsNotVerified(t)
}

func (p *postgres) refusesWhatIsNotVerified(t *testing.T) {
	t.Helper()
	if said, ok := p.query(t, "other.example.org", p.roots(), "select 1"); ok || !strings.Contains(said, `server certificate for "db.example.org" does not match host name "other.example.org"`) {
		t.Errorf("with the wrong name: %s", said)
	}
	other := proctest.Folder(t)
	writeCA(t, other, "another root")
	if said, ok := p.query(t, databaseName, filepath.Join(other, "root-cert.pem"), "select 1"); ok || !strings.Contains(said, "certificate verify failed") {
		t.Errorf("with another root: %s", said)
	}
}
