package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"aead.dev/minisign"
)

// signer makes signatures that minisign verifies. They are the same for the same bytes.
type signer struct{ key minisign.PrivateKey }

// readSigner reads a secret key as `minisign -G -W` makes it. No path: nil.
func readSigner(path string) (*signer, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &signer{}
	if err := s.key.UnmarshalText(text); err != nil {
		return nil, fmt.Errorf("%s has no minisign secret key without password (minisign -G -W makes one)", path) // the error may quote it
	}
	return s, nil
}

// sign writes path.minisig. The comment is signed with the file.
func (s *signer) sign(path, comment string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return s.signTo(path+".minisig", file, comment)
}

// signTo writes the signature of a content to a file.
func (s *signer) signTo(file string, content io.Reader, comment string) error {
	if s == nil {
		return nil
	}
	reader := minisign.NewReader(content)
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return err
	}
	return os.WriteFile(file, reader.SignWithComments(s.key, comment, "countersign release"), 0o644)
}

// sum is a file's SHA-256 in hex.
func sum(path string) (string, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, file)
	return hex.EncodeToString(hash.Sum(nil)), size, err
}
