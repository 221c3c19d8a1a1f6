package token

import (
	"context"
	"errors"
	"io/fs"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// File is a source that reads a file for each request, as whoever issues the token
// replaces it. Whoever may read the file is the operator's matter: kubelet gives
// projected tokens the mode 0644. It is safe for concurrent use.
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
func (f File) Token(context.Context) (ca.Bearer, error) {
	content, err := safefile.Read(f.Path, maxToken)
	switch {
	case f.Optional && errors.Is(err, fs.ErrNotExist):
		return ca.Bearer{}, nil
	case err != nil:
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "token file: %w", err)
	}
	return parse(content, f.String())
}

func (f File) String() string { return "token file: " + f.Path }
