package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/countersign-dev/countersign/internal/host/safefile"
)

// The size limits of a key, in bytes.
const (
	MinKey = 32
	MaxKey = 4096
)

// minEntropy separates random bytes from a repeated word. By this measure 32 random bytes
// have about 150 bits, 64 random hexadecimal digits about 240.
const minEntropy = 128

// ReadKey reads a key from a file that only its owner, root or this user, may access. A group may
// read root's file: systemd's credentials and a kubelet's secrets are made so for the user of one
// service. ReadKey follows links, as mounted secrets are links.
func ReadKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would block
		return nil, fmt.Errorf("%s is not a regular file (%s)", path, info.Mode().Type())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	if err := checkKeyFile(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, MaxKey+2))
	if err != nil {
		return nil, err
	}
	key := TrimKey(text)
	if err := CheckKey(key); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// checkKeyFile is checkPrivate, and also takes a file of root that a group may read.
func checkKeyFile(what string, info fs.FileInfo) error {
	if safefile.OfRoot(info) {
		return safefile.CheckAccess(what, info, 0o037)
	}
	return checkPrivate(what, info)
}

// TrimKey returns text without trailing white space, which editors and programs add. It
// returns a binary key unchanged.
func TrimKey(text []byte) []byte {
	for _, c := range text {
		if c > '~' || c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return text
		}
	}
	return bytes.TrimRight(text, " \t\r\n")
}

// CheckKey returns an error if key is too short or long, or too regular to be random.
func CheckKey(key []byte) error {
	switch {
	case len(key) < MinKey:
		return fmt.Errorf("the key has %d bytes: write %d random bytes or more, as \"openssl rand -hex 32\" does", len(key), MinKey)
	case len(key) > MaxKey:
		return fmt.Errorf("the key has more than %d bytes", MaxKey)
	case entropy(key) < minEntropy:
		return errors.New("the key is too regular to be random: write what \"openssl rand -hex 32\" prints")
	}
	return nil
}

// entropy returns the Shannon entropy of key's bytes, in bits. It cannot prove a key
// random, only show that it is not.
func entropy(key []byte) (bits float64) {
	var counts [256]float64
	for _, c := range key {
		counts[c]++
	}
	for _, n := range counts {
		if n > 0 {
			bits -= n * math.Log2(n/float64(len(key)))
		}
	}
	return bits
}
