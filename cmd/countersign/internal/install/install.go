// Package install takes providers from a signed index: [Install] puts one into a folder, and
// [Key.VerifyProvider] checks the signature of one that is installed. It runs none.
//
// An index and each provider are signed with a minisign key, and an index has the hashes of its
// providers. So a server of the files, or a proxy in between, can only withhold them or replay a
// signed index; an older one than the folder has seen is refused.
package install

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/host/verified"
)

// Request is what to install.
type Request struct {
	Name, Version string   // no version: the only one of the index
	From          string   // a folder, an index file, or an https URL of either
	Hosts         []string // that From may redirect to
	Key           Key
	Folder        string // where to put it; it is made
	Older         bool   // an older index than seen before is taken, too
}

// Installed is what was put where.
type Installed struct {
	Name, Version, Path, SHA256 string
}

const patience = 10 * time.Minute

// Install puts a provider into the folder as countersign-provider-NAME@VERSION, with its signature
// beside it. Nothing is there under these names before all checks have passed.
func Install(ctx context.Context, r Request) (Installed, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	from, name, err := sourceOf(r.From, r.Hosts)
	if err != nil {
		return Installed{}, err
	}
	i, err := r.index(ctx, from, name)
	if err != nil {
		return Installed{}, err
	}
	b, err := i.find(r.Name, r.Version)
	if err != nil {
		return Installed{}, err
	}
	if err := os.MkdirAll(r.Folder, 0o755); err != nil { // #nosec G301 -- of programs
		return Installed{}, err
	}
	unlock, err := lockFolder(r.Folder)
	if err != nil {
		return Installed{}, err
	}
	defer unlock()
	root, err := os.OpenRoot(r.Folder)
	if err != nil {
		return Installed{}, err
	}
	defer func() { _ = root.Close() }()
	if err := r.notOlder(root, i.Serial); err != nil {
		return Installed{}, err
	}
	file, err := r.put(ctx, from, root, b)
	return Installed{b.Name, b.Version, filepath.Join(r.Folder, file), b.SHA256}, err
}

func (r Request) index(ctx context.Context, from source, name string) (index, error) {
	content, err := read(ctx, from, name, maxIndex)
	if err != nil {
		return index{}, err
	}
	signature, err := read(ctx, from, name+verified.SignatureSuffix, maxSignature)
	if err != nil {
		return index{}, err
	}
	if _, err := r.Key.verify(bytes.NewReader(content), signature); err != nil {
		return index{}, fmt.Errorf("%s is refused: %w", name, err)
	}
	return parseIndex(content)
}

// put fetches, checks and renames.
func (r Request) put(ctx context.Context, from source, root *os.Root, b build) (name string, err error) {
	signature, err := read(ctx, from, b.File[:len(b.File)-len(".gz")]+verified.SignatureSuffix, maxSignature)
	if err != nil {
		return "", err
	}
	name = verified.BinaryName(b.Name, b.Version)
	fresh := "." + name + ".new"
	defer func() { _ = root.Remove(fresh) }()
	if err := fetch(ctx, from, root, fresh, b); err != nil {
		return "", fmt.Errorf("%s is refused: %w", b.File, err)
	}
	file, err := root.Open(fresh)
	if err != nil {
		return "", err
	}
	err = errors.Join(r.Key.verifyProvider(file, signature, b.Name, b.Version), file.Close())
	if err != nil {
		return "", fmt.Errorf("%s is refused: %w", b.File, err)
	}
	return name, errors.Join(replace(root, name+verified.SignatureSuffix, signature), root.Rename(fresh, name), safefile.Sync(root))
}

// fetch unpacks a file into a new one, up to its size in the index.
func fetch(ctx context.Context, from source, root *os.Root, name string, b build) error {
	packed, err := from.open(ctx, b.File)
	if err != nil {
		return err
	}
	defer func() { _ = packed.Close() }()
	unpacked, err := gzip.NewReader(io.LimitReader(packed, b.Size+maxIndex))
	if err != nil {
		return err
	}
	if err := safefile.Create(root, name, safefile.File{Mode: 0o755}); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, hash), io.LimitReader(unpacked, b.Size+1))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); size != b.Size || got != b.SHA256 {
		return fmt.Errorf("its first %d bytes have SHA-256 %s; the index has %d bytes, %s", size, got, b.Size, b.SHA256)
	}
	return nil
}

// seenName is the file that keeps the highest serial of each key's index.
const seenName = ".countersign-index-seen"

// notOlder refuses an index that was replaced by one that this folder has seen: the server could
// bring back a provider with a known hole.
func (r Request) notOlder(root *os.Root, serial int64) error {
	seen := map[string]int64{}
	content, err := root.ReadFile(seenName)
	if err == nil {
		err = json.Unmarshal(content, &seen)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w", seenName, root.Name(), err)
	}
	id := fmt.Sprintf("%X", r.Key.key.ID())
	if serial < seen[id] && !r.Older {
		return fmt.Errorf("the index has serial %d, and %d was seen here: it is an old one; to take it, add --allow-older", serial, seen[id])
	}
	if serial <= seen[id] {
		return nil
	}
	seen[id] = serial
	content, err = json.Marshal(seen)
	if err != nil {
		return err
	}
	return replace(root, seenName, content)
}

func replace(root *os.Root, name string, content []byte) error {
	fresh := "." + name + ".new"
	if err := safefile.Create(root, fresh, safefile.File{Mode: 0o644, Content: content}); err != nil {
		return err
	}
	return root.Rename(fresh, name)
}
