package setting

import (
	"crypto/x509"
	"errors"
	"fmt"
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
type Certificates string

// UnmarshalText takes PEM, which it checks, or a path.
func (c *Certificates) UnmarshalText(written []byte) error {
	if *c = Certificates(written); c.inline() {
		if _, err := pki.ParseCertificates(written); err != nil {
			return errors.New("it takes certificates in PEM or the path of a file: " + err.Error())
		}
		return nil
	}
	return new(File).UnmarshalText(written)
}

// SettingSchema describes the setting.
func (Certificates) SettingSchema(reflect.StructTag) string {
	return schema("", "", "/etc/ca/roots.pem", "-----BEGIN CERTIFICATE-----\n…")
}

func (c Certificates) inline() bool { return strings.Contains(string(c), "-----BEGIN") }

// Read returns the certificates in order; it reads the file anew.
func (c Certificates) Read() ([]*x509.Certificate, error) { return parsed(c, pki.ParseCertificates) }

// Bundle returns them as roots, of which each must be a self-signed CA certificate; it reads the
// file anew.
func (c Certificates) Bundle() (*pki.Bundle, error) { return parsed(c, pki.ParseBundle) }

func parsed[T any](c Certificates, parse func([]byte) (T, error)) (out T, err error) {
	if c.inline() {
		return parse([]byte(c))
	}
	content, err := File(c).Read()
	if err != nil {
		return out, err
	}
	if out, err = parse(content); err != nil {
		return out, fmt.Errorf("%s: %w", string(c), err)
	}
	return out, nil
}
