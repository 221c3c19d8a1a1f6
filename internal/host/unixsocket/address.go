package unixsocket

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// maxPath is the maximum length of a socket path in bytes (sun_path of 108 on Linux,
// without its final NUL).
const maxPath = 107

var errNoPath = errors.New("write the path of a unix socket, or unix:///path")

// ParsePath returns the path of a socket that a person named: a path, unix:PATH as gRPC writes
// it, or unix:///PATH as SPIFFE_ENDPOINT_SOCKET has it.
func ParsePath(text string) (string, error) {
	path, isURI := strings.CutPrefix(text, "unix:")
	rest, isURL := strings.CutPrefix(path, "//")
	if isURI && isURL {
		path = rest
	}
	switch {
	case path == "", isURI && isURL && !filepath.IsAbs(path), !isURI && strings.Contains(path, "://"):
		return "", errNoPath
	case len(path) > maxPath:
		return "", fmt.Errorf("the path has %d bytes; a unix socket has at most %d: write a shorter one", len(path), maxPath)
	}
	return path, nil
}

// ParseAddress returns the address of a program on this machine: a socket that begins with
// unix:, or host:port. Its String is what to connect to.
func ParseAddress(text string) (net.Addr, error) {
	if strings.HasPrefix(text, "unix:") {
		path, err := ParsePath(text)
		return &net.UnixAddr{Name: path, Net: "unix"}, err
	}
	if _, port, err := net.SplitHostPort(text); err != nil || port == "" || strings.ContainsAny(text, "/?#@ ") {
		return nil, errors.New("write host:port or unix:PATH")
	}
	return hostPort(text), nil
}

// hostPort is a TCP address whose host may be a name.
type hostPort string

func (hostPort) Network() string  { return "tcp" }
func (h hostPort) String() string { return string(h) }
