package token

import (
	"context"
	"errors"
	"io/fs"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// File is a source that reads a file for each request, as the issuer replaces it. It does
// not check who may read the file: kubelet gives projected tokens mode 0644. It is safe
// for concurrent use.
type File struct {
	// Path names a regular file with one token: at most 64 KiB of printable ASCII without
	// spaces; surrounding white space is ignored. Required.
	Path string
	// Optional treats a missing file as no token instead of an error, for an authority
	// that may identify its caller by certificate. Default: false.
	Optional bool
}

// Token reads the file. The error's reason is [ca.Unavailable], as the file may be valid a
// moment later; it names the path and never shows the content.
func (f File) Token(context.Context) (ca.Bearer, error) {
	content, err := safefile.Read(f.Path, maxToken)
	switch {
	case f.Optional && errors.Is(err, fs.ErrNotExist):
		return ca.Bearer{}, nil
	case err != nil:
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "token file: %w; write the token there, or name another file", err)
	}
	return parse(content, f.String())
}

func (f File) String() string { return "token file: " + f.Path }
