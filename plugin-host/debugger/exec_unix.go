//go:build unix

package debugger

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/plugin-host/internal/attach"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// aside is where descriptors wait for their numbers, which may be in use.
const aside = 100

// Exec replaces this process by a command that starts a provider, with the descriptors that a
// host passes: the lifeline of the Debugger with this folder, and its channel. It returns only
// if that fails.
func Exec(ctx context.Context, folder string, command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	// The channel first: it is there when the provider reads its lifeline.
	for _, one := range []struct {
		socket, variable string
		fd               int
	}{{ChannelSocket, wire.EnvChannelFD, wire.ChannelFD}, {LifelineSocket, wire.EnvLifelineFD, wire.LifelineFD}} {
		if err := connect(ctx, filepath.Join(folder, one.socket), aside+one.fd); err != nil {
			return fmt.Errorf("%w; is countersign provider debug still running?", err)
		}
		if err := os.Setenv(one.variable, strconv.Itoa(one.fd)); err != nil {
			return err
		}
	}
	// From here on, the runtime's own descriptors may be gone.
	for _, fd := range []int{wire.ChannelFD, wire.LifelineFD} {
		if err := unix.Dup2(aside+fd, fd); err != nil {
			return err
		}
		unix.CloseOnExec(aside + fd)
	}
	return unix.Exec(path, command, os.Environ())
}

// connect makes a blocking descriptor of a connection.
func connect(ctx context.Context, socket string, fd int) error {
	conn, err := attach.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	file, err := conn.(*net.UnixConn).File() //nolint:errcheck // attach.Dial dials unix sockets
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Dup2(int(file.Fd()), fd)
}
