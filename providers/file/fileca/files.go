package fileca

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// The names of Istio's layout (istio.io: Plug in CA Certificates).
const (
	certFile  = "ca-cert.pem"
	keyFile   = "ca-key.pem"
	chainFile = "cert-chain.pem"
	rootFile  = "root-cert.pem"
)

// files are the contents of the folder at one moment.
type files struct {
	cert, key, chain, root []byte
	keyMode                fs.FileMode
}

// sum identifies the contents.
func (f *files) sum() [sha256.Size]byte {
	hash := sha256.New()
	for _, content := range [][]byte{f.cert, f.key, f.chain, f.root} {
		// With the length, a byte that moves from one file to the next changes the sum.
		_, _ = fmt.Fprintf(hash, "%d:", len(content)) // a hash returns no error
		_, _ = hash.Write(content)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

var errUnsettled = errors.New("the files keep changing while they are read")

// readFiles reads the folder's files in one consistent state.
func readFiles(dir string) (*files, error) {
	if f, err := settle(func() (*files, error) { return readOnce(dir) }); f != nil || err != nil {
		return f, err
	}
	return nil, fmt.Errorf("%w: %s", errUnsettled, dir)
}

// settle reads until two reads agree: a folder may be replaced file by file or, by
// Kubernetes, all at once during a read. It returns nil if the files do not settle.
func settle(read func() (*files, error)) (*files, error) {
	last, err := read()
	if err != nil {
		return nil, err
	}
	for range 5 {
		now, err := read()
		if err != nil {
			return nil, err
		}
		if now.sum() == last.sum() {
			return now, nil
		}
		last = now
	}
	return nil, nil
}

func readOnce(dir string) (*files, error) {
	var f files
	for _, file := range []struct {
		name    string
		content *[]byte
	}{{certFile, &f.cert}, {keyFile, &f.key}, {chainFile, &f.chain}, {rootFile, &f.root}} {
		content, err := setting.File(filepath.Join(dir, file.name)).Read()
		switch {
		case errors.Is(err, fs.ErrNotExist) && file.name == chainFile:
			// There is no certificate between the CA and its root.
		case err != nil:
			return nil, err
		}
		*file.content = content
	}
	key, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, err
	}
	f.keyMode = key.Mode()
	return &f, nil
}
