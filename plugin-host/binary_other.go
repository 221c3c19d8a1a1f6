//go:build !linux

package pluginhost

import (
	"io"
	"os"
)

// openBinary hashes the file. What is executed later is the path: between the two
// the file can be exchanged on this system.
func openBinary(path string, _ receipts) (*binary, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = checkFile(path, info)
	}
	var sum string
	if err == nil {
		sum, err = hashBeside(io.NewSectionReader(file, 0, maxBinary), nil)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &binary{path: path, sha256: sum, file: file, script: isScript(file)}, nil
}

// unchanged cannot be told here.
func (b *binary) unchanged() error { return nil }

// command is the file itself.
func (b *binary) command() (path string, extra []*os.File) { return b.path, nil }

// mountedNoexec cannot be told here.
func mountedNoexec(*os.File) bool { return false }
