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
	if s == nil {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := minisign.NewReader(file)
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return err
	}
	text := reader.SignWithComments(s.key, comment, "countersign release")
	return os.WriteFile(path+".minisig", text, 0o644)
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
