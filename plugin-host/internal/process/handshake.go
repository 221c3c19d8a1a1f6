package process

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// ErrVersion is the error of a provider that chose a version that was not offered.
var ErrVersion = errors.New("provider speaks protocol version")

// maxHandshake is the maximum length of the handshake line in bytes.
const maxHandshake = wire.MaxHandshake

// channelAddress names the inherited channel.
const channelAddress = wire.ChannelAddress

// handshake is a checked handshake line.
type handshake struct {
	version int
	network string
	address string
	cert    *x509.Certificate // AutoMTLS: the one that the peer must present
	auth    Authentication
}

// parseHandshake parses and checks the first line of a provider's standard output. The
// host may dial whatever it returns.
func parseHandshake(line string, offered []int, folder string) (handshake, error) {
	fields := strings.Split(strings.TrimSuffix(line, "\r"), "|")
	if len(fields) < 5 || len(fields) > 6 {
		return handshake{}, fmt.Errorf("invalid handshake line %s, want "+
			"1|VERSION|unix|ADDRESS|grpc|CERTIFICATE; a provider must print nothing else to standard output", text.Quote(line))
	}
	if fields[0] != "1" {
		return handshake{}, fmt.Errorf("unsupported core protocol %s in the handshake line, want 1", text.Quote(fields[0]))
	}
	h := handshake{network: fields[2], address: fields[3]}
	version, err := strconv.Atoi(fields[1])
	if err != nil || !slices.Contains(offered, version) {
		return handshake{}, fmt.Errorf("%w %s, this host offers %v; use a provider built for one of these",
			ErrVersion, text.Quote(fields[1]), offered)
	}
	h.version = version
	if fields[4] != "grpc" {
		return handshake{}, fmt.Errorf("unsupported protocol %s in the handshake line, want grpc", text.Quote(fields[4]))
	}
	cert := ""
	if len(fields) == 6 {
		cert = fields[5]
	}
	return h, h.authenticate(cert, folder)
}

// authenticate decides which row of the table in PROTOCOL.md applies.
func (h *handshake) authenticate(cert, folder string) error {
	if err := checkAddress(h.network, h.address, folder); err != nil {
		return err
	}
	switch {
	case h.address == channelAddress && cert != "":
		return errors.New("handshake line names the inherited channel and a certificate; the channel has none")
	case h.address == channelAddress:
		h.auth = Channel
	case cert == "" && h.network == "unix":
		h.auth = PinnedTLS
	case cert == "":
		return errors.New("handshake line has no certificate, which tcp requires")
	default:
		h.auth = AutoMTLS
		return h.parseCert(cert)
	}
	return nil
}

func (h *handshake) parseCert(field string) error {
	der, err := base64.RawStdEncoding.Strict().DecodeString(field)
	if err != nil {
		return fmt.Errorf("certificate in the handshake line is not unpadded base64: %w", err)
	}
	if h.cert, err = pki.ParseCertificate(der); err != nil {
		return fmt.Errorf("the certificate in the handshake line %w", err)
	}
	return nil
}

// checkAddress accepts the channel and paths in the provider's own folder.
func checkAddress(network, address, folder string) error {
	if network == "tcp" && runtime.GOOS == "windows" { // stock plugin.Serve has nothing else there
		if host, _, err := net.SplitHostPort(address); err == nil && host == "127.0.0.1" {
			return nil
		}
	}
	if network != "unix" {
		return fmt.Errorf("unsupported network %s (address %s) in the handshake line, want unix", text.Quote(network), text.Quote(address))
	}
	if address == channelAddress && runtime.GOOS != "windows" {
		return nil
	}
	if filepath.Clean(address) != address || filepath.Dir(address) != folder {
		return fmt.Errorf("handshake line names the socket %s, outside the folder %s: create the socket in the folder that PLUGIN_UNIX_SOCKET_DIR names",
			text.Quote(address), folder)
	}
	return nil
}

// readHandshake reads the first line. It refuses one that is too long, incomplete or
// followed by more.
func readHandshake(r io.Reader) (string, error) {
	buf := make([]byte, 0, maxHandshake+1)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if end := bytes.IndexByte(buf, '\n'); end >= 0 && end < maxHandshake {
			if rest := buf[end+1:]; len(rest) > 0 {
				return "", fmt.Errorf("unexpected second line on standard output: %s; print only the handshake line there", text.Quote(string(rest)))
			}
			return string(buf[:end]), nil
		}
		if len(buf) >= maxHandshake {
			return "", fmt.Errorf("handshake line is longer than %d bytes: %s; print only the handshake line to standard output", maxHandshake, text.Quote(string(buf)))
		}
		if err != nil {
			return string(buf), err
		}
	}
}
