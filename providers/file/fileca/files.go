package fileca

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// The names of Istio's layout (istio.io: Plug in CA Certificates).
const (
	certFile  = "ca-cert.pem"
	keyFile   = "ca-key.pem"
	chainFile = "cert-chain.pem"
	rootFile  = "root-cert.pem"
)

const maxFile = 1 << 20

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

// readFiles reads the folder's files in one consistent state.
func readFiles(dir string) (*files, error) {
	if f, err := settle(func() (*files, error) { return readOnce(dir) }); f != nil || err != nil {
		return f, err
	}
	return nil, fmt.Errorf("the files in %s keep changing while they are read", dir)
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
		content, mode, err := readFile(filepath.Join(dir, file.name))
		switch {
		case errors.Is(err, fs.ErrNotExist) && file.name == chainFile:
			// There is no certificate between the CA and its root.
		case err != nil:
			return nil, err
		}
		*file.content = content
		if file.name == keyFile {
			f.keyMode = mode
		}
	}
	return &f, nil
}

// readFile reads a regular file of at most 1 MiB.
func readFile(path string) ([]byte, fs.FileMode, error) {
	// Checked before it is opened: opening a named pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }() // it was only read
	var content bytes.Buffer
	if _, err := content.ReadFrom(io.LimitReader(file, maxFile+1)); err != nil {
		return nil, 0, err
	}
	if content.Len() > maxFile {
		return nil, 0, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return content.Bytes(), info.Mode(), nil
}
