package setting

import (
	"crypto/tls"
	"fmt"
	"reflect"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
)

// SystemRoots in place of a root file means the roots of the operating system.
const SystemRoots = "SYSTEM"

// KeyPair is a certificate in a file, PEM with the leaf first, and its key, PEM. The zero
// value has neither.
type KeyPair struct {
	CertFile string `json:"cert_file,omitempty" jsonschema:"PEM file with the certificate and its chain, read for each use"`
	KeyFile  string `json:"key_file,omitempty" jsonschema:"PEM file with the certificate's key"`
}

// CheckSetting requires both files or none.
func (p KeyPair) CheckSetting(reflect.StructTag) error { return p.Check("cert_file", "key_file") }

// IsSet reports whether there is one.
func (p KeyPair) IsSet() bool { return p != KeyPair{} }

// Read reads both files, of at most 1 MiB each. It fails if the key does not belong to the
// leaf, or the leaf has expired. Errors do not quote the key.
func (p KeyPair) Read() (*tls.Certificate, error) {
	return endpoint.ReadPair(p.CertFile, p.KeyFile, time.Now())
}

// Check requires both files or none, and names the two as these settings.
func (p KeyPair) Check(certSetting, keySetting string) error {
	if (p.CertFile == "") == (p.KeyFile == "") {
		return nil
	}
	return fmt.Errorf("%s is %s and %s is %s: set both or neither", certSetting, text.Quote(p.CertFile), keySetting, text.Quote(p.KeyFile))
}

// TLS configures how a TLS client verifies its server and authenticates to it. Embed it, or make
// it a field of its own. The zero value verifies with the roots of the operating system.
type TLS struct {
	// RootFile is a PEM file, of which every certificate is trusted, or [SystemRoots].
	RootFile string `json:"root_file,omitempty" jsonschema:"PEM file with the roots that verify the server, or SYSTEM for those of the operating system (default SYSTEM)"`
	// ServerName is the name that the server's certificate must have. Default: the host that
	// is called.
	ServerName     string `json:"server_name,omitempty" jsonschema:"name that the server's certificate must have (default the host of the URL)"`
	ClientCertFile string `json:"client_cert_file,omitempty" jsonschema:"PEM file with a client certificate and its chain, read for each connection (default none)"`
	ClientKeyFile  string `json:"client_key_file,omitempty" jsonschema:"PEM file with the client certificate's key (default none)"`
}

// CheckSetting requires both files of the client certificate or none.
func (t TLS) CheckSetting(reflect.StructTag) error {
	return t.Client().Check("client_cert_file", "client_key_file")
}

// Client returns the client certificate.
func (t TLS) Client() KeyPair { return KeyPair{t.ClientCertFile, t.ClientKeyFile} }

// Config returns settings for TLS 1.2 or later. It reads the roots now, so that a caller that
// calls it for each connection needs no restart when they change; rest.Transport does. The
// client certificate is read for each handshake.
func (t TLS) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if pair := t.Client(); pair.IsSet() {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Read() }
	}
	if t.RootFile == "" || t.RootFile == SystemRoots {
		return config, nil
	}
	var err error
	config.RootCAs, err = endpoint.ReadRoots(t.RootFile)
	return config, err
}
