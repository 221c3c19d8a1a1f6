package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// What a key may have, in bytes.
const (
	MinKey = 32
	MaxKey = 4096
)

// minEntropy tells random bytes from a word that is repeated. 32 random bytes have
// some 150 bits by this measure, 64 random hexadecimal digits some 240.
const minEntropy = 128

// ReadKey reads a key from a file, which nobody but its owner, root or this user, may
// read. A link is followed: secrets are mounted so.
func ReadKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe would have us wait
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
	if err := checkPrivate(path, info); err != nil {
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

// TrimKey returns the key without the white space at the end of text, which editors
// and programs write; a key that is bytes is left as it is.
func TrimKey(text []byte) []byte {
	for _, c := range text {
		if c > '~' || c < ' ' && c != '\n' && c != '\r' && c != '\t' {
			return text
		}
	}
	return bytes.TrimRight(text, " \t\r\n")
}

// CheckKey returns an error for what cannot be a random key.
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

// entropy is Shannon's, of the bytes by how often they occur, in bits. It cannot tell
// what is random, only what is not.
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
