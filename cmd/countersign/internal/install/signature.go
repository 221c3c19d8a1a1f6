package install

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"aead.dev/minisign"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/internal/text"
)

// Key is a minisign public key.
type Key struct{ key minisign.PublicKey }

// ReadKey reads a public key as `minisign -G` writes it.
func ReadKey(path string) (Key, error) {
	content, err := safefile.Read(path, maxSignature)
	if err != nil {
		return Key{}, err
	}
	var k Key
	if err := k.key.UnmarshalText(content); err != nil {
		return Key{}, fmt.Errorf("%s has no minisign public key", path)
	}
	return k, nil
}

// verify checks that the key signed what r has, and returns the comment that it signed with it.
func (k Key) verify(r io.Reader, signature []byte) (comment string, err error) {
	reader := minisign.NewReader(r)
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return "", err
	}
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		return "", errors.New("its signature is not of minisign's format")
	}
	if s.KeyID != k.key.ID() {
		return "", fmt.Errorf("it is signed by the key %X, not by %X", s.KeyID, k.key.ID())
	}
	if !reader.Verify(k.key, signature) {
		return "", errors.New("its signature is wrong")
	}
	return s.TrustedComment, nil
}

// VerifyProvider checks the signature beside a provider's file: the key signed these bytes as this
// provider, in this version, for this platform.
func (k Key) VerifyProvider(path, name, version string) error {
	signature, err := safefile.Read(path+verified.SignatureSuffix, maxSignature)
	if err != nil {
		return fmt.Errorf("it is not signed: %w", err)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return k.verifyProvider(file, signature, name, version)
}

func (k Key) verifyProvider(r io.Reader, signature []byte, name, version string) error {
	comment, err := k.verify(r, signature)
	want := fmt.Sprintf("countersign-provider-%s %s %s/%s", name, version, runtime.GOOS, runtime.GOARCH)
	if err == nil && comment != want {
		err = fmt.Errorf("it is signed as %s, not as %q", text.Quote(comment), want)
	}
	return err
}
