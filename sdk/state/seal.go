package state

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// magic is the first line of a file; it names the format's version.
	magic = "countersign state 1\n"
	// maxHeader bounds the second line.
	maxHeader = 64 << 10

	saltSize = 32
	keySize  = 32 // AES-256
	purpose  = "countersign state 1: AES-256-GCM"
)

// header is the second line: it describes the record. It is readable, so that an operator can
// identify the files, and authenticated.
type header struct {
	Record    string `json:"record"`
	Identity  string `json:"identity"`
	Authority string `json:"authority"`
	position
}

// position binds a record of a [Log] to its place; it is zero in a folder's file.
type position struct {
	Log     string `json:"log,omitempty"`     // the random ID of the log
	At      int64  `json:"at,omitempty"`      // where its frame begins in the log, in bytes
	Renew   int64  `json:"renew,omitempty"`   // in seconds since 1970, as
	Ends    int64  `json:"ends,omitempty"`    // [secret.Entry] has them
	Deleted bool   `json:"deleted,omitempty"` // the record says that there is none
}

// errSealed is the one error for content that cannot be decrypted.
var errSealed = errors.New("it cannot be decrypted: the key is another one, or the file was changed")

// seal returns the file for a record:
//
//	magic · header as JSON · newline · salt (32) · nonce (12) · ciphertext and tag
//
// Everything before the nonce is additional authenticated data.
func seal(key []byte, name string, r secret.Record, random io.Reader) ([]byte, error) {
	return sealAs(key, header{Record: name, Identity: r.Identity, Authority: r.Authority}, r.Content, random)
}

// sealAs is seal with any header.
func sealAs(key []byte, h header, content []byte, random io.Reader) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(text) > maxHeader {
		return nil, fmt.Errorf("its names have %d bytes, %d are allowed", len(text), maxHeader)
	}
	out := bytes.NewBufferString(magic)
	out.Write(text)
	out.WriteByte('\n')
	salt := make([]byte, saltSize)
	if _, err := io.ReadFull(random, salt); err != nil {
		return nil, err
	}
	out.Write(salt)
	aead, err := cipherOf(key, salt)
	if err != nil {
		return nil, err
	}
	before := out.Bytes()
	sealed := aead.Seal(bytes.Clone(before), nil, content, before) //nolint:gosec // G407: this cipher draws its nonce itself
	if len(sealed) > maxFile {
		return nil, fmt.Errorf("its file would have %d bytes, %d are allowed", len(sealed), maxFile)
	}
	return sealed, nil
}

// open returns the record in a file if it has that name.
func open(key []byte, name string, file []byte) (secret.Record, error) {
	h, content, err := openAny(key, file)
	switch {
	case err != nil:
		return secret.Record{}, err
	case h.Record != name:
		return secret.Record{}, fmt.Errorf("it is the record %.256q under the name of another", h.Record)
	case h.position != position{}:
		return secret.Record{}, errors.New("it is a record of a log")
	}
	return secret.Record{Identity: h.Identity, Authority: h.Authority, Content: content}, nil
}

// openAny returns the header and the content of a file, whose names the caller has to check.
func openAny(key, file []byte) (header, []byte, error) {
	h, size, err := parse(file)
	if err != nil {
		return header{}, nil, err
	}
	aead, err := cipherOf(key, file[size-saltSize:size])
	if err != nil {
		return header{}, nil, err
	}
	content, err := aead.Open(nil, nil, file[size:], file[:size])
	if err != nil {
		return header{}, nil, errSealed
	}
	return h, content, nil
}

// parse reads the part before the nonce and returns its size in bytes.
func parse(file []byte) (h header, size int, err error) {
	rest, ours := bytes.CutPrefix(file, []byte(magic))
	if !ours {
		return h, 0, fmt.Errorf("it does not begin with %q", strings.TrimSpace(magic))
	}
	line, rest, whole := bytes.Cut(rest, []byte("\n"))
	switch {
	case !whole, len(rest) < saltSize:
		return h, 0, errors.New("it ends too early")
	case len(line) > maxHeader:
		return h, 0, fmt.Errorf("its second line has %d bytes, %d are allowed", len(line), maxHeader)
	case json.Unmarshal(line, &h) != nil:
		return h, 0, errors.New("its second line is not understood")
	}
	return h, len(magic) + len(line) + 1 + saltSize, nil
}

// cipherOf returns the cipher of one file. Each file has its own key, so no pair of key
// and nonce repeats, however many files are written.
func cipherOf(key, salt []byte) (cipher.AEAD, error) {
	own, err := hkdf.Key(sha256.New, key, salt, purpose, keySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
