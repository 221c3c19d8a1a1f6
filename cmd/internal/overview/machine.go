package overview

import (
	"os"
	"time"
)

// Machine identifies the process that reports.
type Machine struct {
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Config  string    `json:"config,omitempty"`  // its file
	Socket  string    `json:"socket,omitempty"`  // of SDS
	Gateway string    `json:"gateway,omitempty"` // the gateway's socket

	binary  string
	running os.FileInfo // nil if unknown
}

// ThisMachine describes this process, when it starts.
func ThisMachine() Machine {
	path, _ := os.Executable() // empty: unknown
	m := Running(path)
	m.PID, m.Started = os.Getpid(), time.Now()
	m.Host, _ = os.Hostname() // empty: unknown
	return m
}

// Running is a machine of which only the path of the binary is known that it runs.
func Running(binary string) Machine {
	m := Machine{binary: binary}
	m.running, _ = os.Stat(binary) // nil: unknown
	return m
}

// Replaced reports whether the binary is another than the one that runs.
func (m Machine) Replaced() bool {
	if m.running == nil {
		return false
	}
	now, err := os.Stat(m.binary)
	return err == nil && !os.SameFile(now, m.running)
}
