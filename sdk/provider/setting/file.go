package setting

import (
	"crypto/x509"
	"errors"
	"reflect"
	"strings"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/filewatch"
)

const maxFile = 1 << 20

// File is the path of a file that the provider reads.
type File string

// UnmarshalText takes any path.
func (f *File) UnmarshalText(path []byte) error {
	if len(path) == 0 || strings.Contains(string(path), "\x00") {
		return errors.New("it takes the path of a file")
	}
	*f = File(path)
	return nil
}

// SettingSchema describes the setting.
func (File) SettingSchema(reflect.StructTag) string { return schema("", "", "/etc/ca/file") }

// Read reads the file: a regular one of at most 1 MiB. It does not wait at a named pipe.
func (f File) Read() ([]byte, error) { return safefile.Read(string(f), maxFile) }

// Watch sends on changed when the content may have changed; see [filewatch.Watch]. Read the
// file after Watch has returned to miss nothing.
func (f File) Watch() (changed <-chan struct{}, stop func()) {
	return filewatch.Watch(filewatch.Options{}, string(f))
}

// Certificates are 1 to 1,000 certificates in PEM: the text itself, or the path of a file.
type Certificates struct{ written string }

// UnmarshalText takes PEM, which it checks, or a path.
func (c *Certificates) UnmarshalText(written []byte) error {
	c.written = string(written)
	if c.inline() {
		if _, err := pki.ParseCertificates(written); err != nil {
			return errors.New("it takes certificates in PEM or the path of a file: " + err.Error())
		}
		return nil
	}
	return new(File).UnmarshalText(written)
}

// MarshalText returns the text or the path.
func (c Certificates) MarshalText() ([]byte, error) { return []byte(c.written), nil }

// SettingSchema describes the setting.
func (Certificates) SettingSchema(reflect.StructTag) string {
	return schema("", "", "/etc/ca/roots.pem", "-----BEGIN CERTIFICATE-----\n…")
}

func (c Certificates) inline() bool { return strings.Contains(c.written, "-----BEGIN") }

// IsSet reports whether there are any.
func (c Certificates) IsSet() bool { return c.written != "" }

// Read returns the certificates in order; it reads the file anew.
func (c Certificates) Read() ([]*x509.Certificate, error) {
	content := []byte(c.written)
	if !c.inline() {
		var err error
		if content, err = File(c.written).Read(); err != nil {
			return nil, err
		}
	}
	return pki.ParseCertificates(content)
}
