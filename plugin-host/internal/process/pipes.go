package process

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// pipes connect host and process. The host closes the child's ends once the child has
// them.
type pipes struct {
	stdout, stderr     *os.File
	childOut, childErr *os.File

	lifeline, childLifeline *os.File // nil where the system passes none
	childChannel            *os.File

	mu      *sync.Mutex
	channel net.Conn // nil when it was taken
}

func newPipes() (pipes, error) {
	p := pipes{mu: &sync.Mutex{}}
	var errs [3]error
	p.stdout, p.childOut, errs[0] = os.Pipe()
	p.stderr, p.childErr, errs[1] = os.Pipe()
	errs[2] = p.makeSockets()
	if err := errors.Join(errs[:]...); err != nil {
		p.close()
		return pipes{mu: &sync.Mutex{}}, err
	}
	return p, nil
}

// inherited returns the child's descriptors from 3 on.
func (p *pipes) inherited() []*os.File {
	if p.childLifeline == nil {
		return nil
	}
	return []*os.File{p.childLifeline, p.childChannel}
}

func (p *pipes) env() []string {
	if p.childLifeline == nil {
		return nil
	}
	return []string{wire.EnvLifelineFD + "=3", wire.EnvChannelFD + "=4"}
}

// handOver writes the start-up data. It fits the socket's buffer, so the write does not
// block on a provider that does not read it. Errors show elsewhere.
func (p *pipes) handOver(data wire.StartData) {
	if p.lifeline != nil {
		_, _ = data.WriteTo(p.lifeline)
	}
}

// firstLine reads the handshake line until ctx ends.
func (p *pipes) firstLine(ctx context.Context) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = p.stdout.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return readHandshake(p.stdout)
}

// expire ends the reads after a while.
func (p *pipes) expire(after time.Duration) {
	_ = p.stdout.SetReadDeadline(time.Now().Add(after))
	_ = p.stderr.SetReadDeadline(time.Now().Add(after))
}

func (p *pipes) takeChannel() net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conn := p.channel
	p.channel = nil
	return conn
}

// endLifeline makes the process exit.
func (p *pipes) endLifeline() { closeAll(p.lifeline) }

func (p *pipes) closeChilds() {
	closeAll(p.childOut, p.childErr, p.childLifeline, p.childChannel)
}

func (p *pipes) close() {
	p.closeChilds()
	closeAll(p.stdout, p.stderr, p.lifeline)
	if p.mu != nil {
		if conn := p.takeChannel(); conn != nil {
			_ = conn.Close()
		}
	}
}

// closeAll closes files and ignores those that are nil or closed.
func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
