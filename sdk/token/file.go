package token

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// maxFile is what the protocol to a provider takes, too; a projected token of
// Kubernetes is below 4 KiB.
const maxFile = 64 << 10

// File is a source that reads a file for each request, as whoever issues the token
// replaces it. It is safe for concurrent use.
type File struct {
	// Path is of a regular file with one token: 64 KiB at most of printable ASCII
	// without a space; white space around it is passed over. Required.
	Path string
	// Optional makes a file that is not there no token instead of an error, for an
	// authority that may know its caller by a certificate. Default: false.
	Optional bool
}

// Token reads the file. An error is of the reason [ca.Unavailable], as the file may
// be better a moment later; it names the path and never what is in the file.
func (f File) Token(context.Context) (ca.Token, error) {
	content, err := f.read()
	switch {
	case f.Optional && errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", ca.Errorf(ca.Unavailable, "token file: %w", err)
	}
	if fault := faultOf(content); fault != "" {
		return "", ca.Errorf(ca.Unavailable, "token file: %s %s", f.Path, fault)
	}
	return ca.Token(content), nil
}

func (f File) read() ([]byte, error) {
	// Asked before it is opened: opening a named pipe would wait for a writer.
	info, err := os.Stat(f.Path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", f.Path)
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > maxFile:
		return nil, fmt.Errorf("%s has more than %d bytes", f.Path, maxFile)
	}
	return bytes.TrimSpace(content), nil
}

// faultOf says why the content is no token. What is let through can stand in a
// header (RFC 6750, section 2.1, is narrower still).
func faultOf(content []byte) string {
	switch {
	case len(content) == 0:
		return "is empty: a token is needed"
	case bytes.ContainsAny(content, "\r\n"):
		return "has more than one line: one token is needed"
	case bytes.ContainsFunc(content, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "has a space or a character that is not printable ASCII: one token is needed"
	}
	return ""
}
