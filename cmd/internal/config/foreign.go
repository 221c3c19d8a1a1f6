package config

import (
	"fmt"

	"github.com/countersign-dev/countersign/internal/text"
)

// Foreign is another program that serves SDS at socket.path.
type Foreign struct {
	UID uint32
	PID int32 // 0: unknown
}

// LeaveSocketTo records, before [Config.Complete], that another program serves "default"
// and "ROOTCA" at socket.path. The agent then serves everything else at socket.files_path.
// nil means no program.
func (c *Config) LeaveSocketTo(f *Foreign) { c.foreign = f }

// ListenPath is the socket that the agent serves; empty: off.
func (c *Config) ListenPath() string {
	if !c.Socket.Enabled {
		return ""
	}
	if c.foreign != nil {
		return c.Socket.FilesPath
	}
	return c.Socket.Path
}

// elsewhere reports whether another program serves a name. A name in files.secrets or
// spire.secrets is still served, at the other socket.
func (c *Config) elsewhere(name string) bool {
	return c.foreign != nil && (name == DefaultSecret || name == RootCA) && !c.FromOthers(name)
}

// foreignRule is why another program serves a name.
func (c *Config) foreignRule() string {
	return fmt.Sprintf("another program (uid %d) serves %s", c.foreign.UID, text.Clean(c.Socket.Path))
}
