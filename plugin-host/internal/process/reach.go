package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// exitShows is how long after the end of its output a process may end, on a busy machine: its exit status
// has more detail.
const exitShows = 5 * time.Second

type dialer func(context.Context, string) (net.Conn, error)

// reach returns how to connect to the provider, by the table of PROTOCOL.md.
func (p *Process) reach() (credentials.TransportCredentials, dialer) {
	switch p.shake.auth {
	case Channel:
		return insecure.NewCredentials(), p.dialChannel // only these two processes have it
	case AutoMTLS:
		return credentials.NewTLS(p.host.Accept(p.shake.cert.Raw)), p.dialSocket
	default:
		return credentials.NewTLS(p.host.Accept(p.server.Cert())), p.dialSocket
	}
}

// Connect reads the handshake line and connects to the provider at the address in it.
func (p *Process) Connect(ctx context.Context) error {
	line, err := p.pipes.firstLine(ctx)
	if err != nil {
		return p.silent(ctx, line, err)
	}
	if p.shake, err = parseHandshake(line, p.protocols, p.folder.Path); err != nil {
		return err
	}
	if p.shake.auth == Channel {
		p.folder.Remove() // not needed without a socket; a killed host then leaves no folder
	}
	p.readers.Go(p.ignoreStdout)
	credentials, dial := p.reach()
	p.conn, err = grpc.NewClient("passthrough:///provider",
		grpc.WithTransportCredentials(counting{credentials, func() { p.Kill(errFrameFlood) }}), grpc.WithContextDialer(dial), grpc.WithAuthority("localhost"),
		grpc.WithIdleTimeout(0), // an idle channel must not be closed: there is no second one
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithMaxHeaderListSize(wire.MaxHeaders),
		// A window that grows would let all replies arrive before there is room for them.
		grpc.WithStaticStreamWindowSize(64<<10),
	)
	if err != nil {
		return err
	}
	p.Provider = wire.NewRemote(p.conn, wire.RemoteOptions{Protocol: p.protocol(), Timeout: p.opts.CallTimeout})
	return nil
}

func (p *Process) protocol() wire.Protocol {
	for _, protocol := range p.opts.Protocols {
		if protocol.Version == p.shake.version {
			return protocol
		}
	}
	return wire.V1()
}

// silent returns why there is no handshake line.
func (p *Process) silent(ctx context.Context, line string, err error) error {
	if !errors.Is(err, io.EOF) {
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("%w: the provider printed no handshake line to standard output", cause)
		}
		return err
	}
	select {
	case <-p.ended: // Err returns why
		return p.Err()
	case <-ctx.Done():
	case <-time.After(exitShows):
	}
	return fmt.Errorf("closed standard output before completing the handshake line: %s", text.Quote(line))
}

// ignoreStdout drains standard output, so that the provider does not block on it for long. A flood
// is read as slowly as one of standard error.
func (p *Process) ignoreStdout() {
	n := drain(p.pipes.stdout, p.ended)
	if p.stray.Store(n); n > 0 {
		p.log.Warn("discarded provider output after the handshake line", "bytes", n)
	}
}

// dialChannel hands the inherited connection over, once.
func (p *Process) dialChannel(ctx context.Context, _ string) (net.Conn, error) {
	if conn := p.pipes.takeChannel(); conn != nil {
		return conn, nil
	}
	select {
	case <-p.ended: // Err returns why
		return nil, p.Err()
	case <-ctx.Done():
	case <-time.After(lastWords):
	}
	err := errors.New("channel broken")
	p.Kill(err)
	return nil, err
}

func (p *Process) dialSocket(ctx context.Context, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, p.shake.network, p.shake.address)
}
