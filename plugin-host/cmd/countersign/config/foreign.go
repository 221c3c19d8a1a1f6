package config

import "fmt"

// Foreign is a program that is no Countersign and serves SDS at socket.path.
type Foreign struct {
	UID uint32
	PID int32 // 0: not known
}

// LeaveSocketTo says, before [Config.Complete], that another program serves "default"
// and "ROOTCA" at socket.path. The agent then serves what else there is, at
// socket.files_path; nil is nobody.
func (c *Config) LeaveSocketTo(f *Foreign) { c.foreign = f }

// ListenPath is the socket that the agent itself serves; empty where that is switched off.
func (c *Config) ListenPath() string {
	if !c.Socket.Enabled {
		return ""
	}
	if c.foreign != nil {
		return c.Socket.FilesPath
	}
	return c.Socket.Path
}

// elsewhere tells whether a name is another program's to serve. Files that the
// operator names by it are served all the same, at the other socket.
func (c *Config) elsewhere(name string) bool {
	return c.foreign != nil && (name == DefaultSecret || name == RootCA) && !c.FromFiles(name)
}

// foreignRule is by which rule a name is elsewhere.
func (c *Config) foreignRule() string {
	return fmt.Sprintf("another program (uid %d) answers at %s", c.foreign.UID, clip(c.Socket.Path))
}
