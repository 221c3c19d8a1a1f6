package pluginhost

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

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

type dialer func(context.Context, string) (net.Conn, error)

// reach returns how to get to the provider: the table of PROTOCOL.md.
func (p *process) reach() (credentials.TransportCredentials, dialer) {
	switch p.shake.auth {
	case Channel:
		return insecure.NewCredentials(), p.dialChannel // nobody else has an end of it
	case AutoMTLS:
		return credentials.NewTLS(pinned(p.keys.host, p.shake.cert.Raw)), p.dialSocket
	default:
		return credentials.NewTLS(pinned(p.keys.host, p.keys.server.cert)), p.dialSocket
	}
}

// connect reads the handshake line and reaches the provider as that line says.
func (p *process) connect(ctx context.Context) error {
	line, err := p.pipes.firstLine(ctx)
	if err != nil {
		return p.silent(ctx, line, err)
	}
	if p.shake, err = parseHandshake(line, p.protocols, p.runtime.path); err != nil {
		return err
	}
	if p.shake.auth == Channel {
		p.runtime.remove() // it has no socket; so a host that is killed leaves no folder behind
	}
	p.readers.Go(p.ignoreStdout)
	credentials, dial := p.reach()
	p.conn, err = grpc.NewClient("passthrough:///provider",
		grpc.WithTransportCredentials(credentials), grpc.WithContextDialer(dial), grpc.WithAuthority("localhost"),
		grpc.WithIdleTimeout(0), // an idle channel must not be closed: there is no second one
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return err
	}
	p.Provider = wire.NewRemote(p.conn, wire.RemoteOptions{Protocol: p.protocol(), Timeout: p.opts.CallTimeout})
	return nil
}

func (p *process) protocol() wire.Protocol {
	for _, protocol := range p.opts.Protocols {
		if protocol.Version == p.shake.version {
			return protocol
		}
	}
	return wire.V1()
}

// silent says why there is no handshake line.
func (p *process) silent(ctx context.Context, line string, err error) error {
	if !errors.Is(err, io.EOF) {
		return errors.Join(context.Cause(ctx), err)
	}
	select {
	case <-p.ended: // says why
		return p.Err()
	case <-ctx.Done():
	case <-time.After(lastWords):
	}
	return fmt.Errorf("it closed its standard output before its handshake line was whole: %s", foreign(line))
}

// ignoreStdout reads what must not be there, so that nobody blocks on it.
func (p *process) ignoreStdout() {
	if n, _ := io.Copy(io.Discard, p.pipes.stdout); n > 0 {
		p.log.Warn("provider wrote on standard output after its handshake line; that was thrown away", "bytes", n)
	}
}

// dialChannel hands the inherited connection over, once.
func (p *process) dialChannel(context.Context, string) (net.Conn, error) {
	conn := p.pipes.takeChannel()
	if conn == nil {
		err := errors.New("its channel broke")
		p.Kill(err)
		return nil, err
	}
	return conn, nil
}

func (p *process) dialSocket(ctx context.Context, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, p.shake.network, p.shake.address)
}
