package output

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// recordsOf prefixes the name of the file that has an output's records.
	recordsOf = ".record-"
	// maxRecords leaves room for the roots of an operating system, and maxKeyFile for a chain.
	maxRecords = 4 << 20
	maxKeyFile = 1 << 20

	recordsMode = 0o600
)

// NewStorage returns a [secret.Storage] that reads the private keys back from the outputs. The rest of a
// record, which is not secret, is in a file of this process's user beside the output; so a key counts only
// if it is that of the certificate that this agent wrote. signers returns the authorities of a key pair;
// none if another program makes it. NewStorage returns nil if no output has the key of such a pair.
func NewStorage(outputs []Config, signers func(pair string) []string) secret.Storage {
	s := &storage{}
	for _, c := range outputs {
		if k := keyOf(c.withDefaults()); k.file.Name != "" && len(signers(c.Pair)) > 0 {
			s.outputs = append(s.outputs, k)
		}
	}
	if len(s.outputs) == 0 {
		return nil
	}
	return s
}

// storage is safe for concurrent use.
type storage struct {
	mu      sync.Mutex
	outputs []keptOutput
}

// keptOutput is an output whose key is read back.
type keptOutput struct {
	Config
	file    File   // with the key
	path    string // of that file in Folder
	records string // name of the file in Folder with the records
}

// keyOf returns the file of an output that has its key; PEM, if there is a choice.
func keyOf(c Config) keptOutput {
	k := keptOutput{Config: c}
	files := c.Files
	if c.SPIFFE {
		files = []File{{Name: filesecret.CredentialBundle, Content: Combined}}
	}
	for _, content := range []Content{Key, Combined, PKCS12} {
		if i := slices.IndexFunc(files, func(f File) bool { return f.Content == content }); i >= 0 {
			k.file = files[i]
			break
		}
	}
	k.path, k.records = k.file.Name, recordsOf+k.file.Name
	if c.Link != "" {
		k.path, k.records = filepath.Join(c.Link, k.file.Name), recordsOf+c.Link
	}
	return k
}

// HasKey reports whether a file of the output has the key of its pair, and the mode and owner with which
// it is written let the next run of this process's user read it back.
func (c Config) HasKey() bool {
	file := keyOf(c).file
	switch mode := modeOf(file); {
	case file.Name == "", mode&0o022 != 0:
		return false
	case c.UID == nil, *c.UID == os.Geteuid():
		return true
	default:
		return (os.Geteuid() == 0 || mode&0o040 != 0) && (file.Content != PKCS12 || *c.UID == 0)
	}
}

// isPair reports whether the record is that of the output's key pair.
func (k keptOutput) isPair(record string) bool { return record == secret.RecordOf(k.Pair) }

// keeps reports whether the record is stored beside the output. The roots of all authorities are, as a
// reload may have another one sign the pair.
func (k keptOutput) keeps(record string) bool {
	return k.isPair(record) || strings.HasPrefix(record, secret.RecordOfRoots(""))
}

// Load implements [secret.Storage]. It returns the newest record, as an output may have been away when a
// pair was renewed, and an error only if no output has a usable one.
func (s *storage) Load(_ context.Context, name string) (secret.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest kept
	var errs []error
	for _, k := range s.outputs {
		if !k.keeps(name) {
			continue
		}
		r, err := k.load(name)
		switch {
		case err == nil && len(r.Content) > 0:
			if len(newest.Content) == 0 || r.Stored.After(newest.Stored) {
				newest = r
			}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("output %q: %w", k.Name, errno.Explain(err)))
		}
	}
	if len(newest.Content) > 0 {
		return newest.record(), nil
	}
	return secret.Record{}, errors.Join(errs...)
}

// Store implements [secret.Storage]. It stores the record beside each output that needs it.
func (s *storage) Store(_ context.Context, name string, r secret.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, k := range s.outputs {
		if !k.keeps(name) {
			continue
		}
		if err := k.store(name, r); err != nil {
			errs = append(errs, fmt.Errorf("output %q: %w", k.Name, errno.Explain(err)))
		}
	}
	return errors.Join(errs...)
}

// kept is a record as the file has it.
type kept struct {
	Identity  string    `json:"identity,omitempty"`
	Authority string    `json:"authority"`
	Content   []byte    `json:"content"`
	Stored    time.Time `json:"stored"`
}

func (k kept) record() secret.Record {
	return secret.Record{Identity: k.Identity, Authority: k.Authority, Content: k.Content}
}

func (k keptOutput) load(name string) (kept, error) {
	folder, err := os.OpenRoot(k.Folder)
	if err != nil {
		return kept{}, err
	}
	defer func() { _ = folder.Close() }() // only read, so the error does not matter
	records, err := k.read(folder)
	if err != nil {
		return kept{}, fmt.Errorf("%s: %w", k.records, err)
	}
	found := records[name]
	if len(found.Content) == 0 || !k.isPair(name) {
		return found, nil
	}
	var whole secret.Record
	key, err := k.readKey(folder)
	if err == nil {
		whole, err = found.record().WithKey(key)
	}
	if err != nil {
		return kept{}, fmt.Errorf("%s: %w", k.path, err)
	}
	found.Content = whole.Content
	return found, nil
}

// read returns the records of the output's file.
func (k keptOutput) read(folder *os.Root) (map[string]kept, error) {
	text, err := safefile.ReadWithin(folder, k.records, maxRecords, func(info fs.FileInfo) error { return safefile.CheckAccess("it", info, 0o077) })
	if err != nil {
		return nil, err
	}
	records := map[string]kept{}
	if json.Unmarshal(text, &records) != nil {
		return nil, errors.New("its content is not understood")
	}
	return records, nil
}

// readKey returns the output's key as PEM. The file must be one that only root, this process's user or,
// for PEM, the configured owner can write: to open a keystore takes as long as its writer likes.
func (k keptOutput) readKey(folder *os.Root) ([]byte, error) {
	var owners []int
	if k.UID != nil && k.file.Content != PKCS12 {
		owners = append(owners, *k.UID)
	}
	text, err := safefile.ReadWithin(folder, k.path, maxKeyFile, func(info fs.FileInfo) error { return safefile.CheckAccess("it", info, 0o022, owners...) })
	if err != nil || k.file.Content != PKCS12 {
		return text, err
	}
	password, err := k.Password()
	if err != nil {
		return nil, fmt.Errorf("read the password: %w", err)
	}
	key, _, _, err := pkcs12.DecodeChain(text, password)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the keystore has no private key")
	}
	return pki.EncodeKey(signer)
}

// store replaces a record in the output's file, or removes it if it has no content.
func (k keptOutput) store(name string, r secret.Record) (err error) {
	if k.isPair(name) && len(r.Content) > 0 {
		if r, err = r.WithoutKey(); err != nil {
			return err
		}
	}
	if err := makeFolder(k.Folder); err != nil {
		return err
	}
	folder, err := os.OpenRoot(k.Folder)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // everything written is synced
	records, err := k.read(folder)
	if err != nil {
		records = map[string]kept{} // Load has reported why
	}
	if records[name] = (kept{r.Identity, r.Authority, r.Content, time.Now()}); len(r.Content) == 0 {
		delete(records, name)
	}
	text, _ := json.Marshal(records) // of strings and bytes: it cannot fail
	return replace(folder, k.records, text)
}

// replace replaces a private file atomically.
func replace(folder *os.Root, name string, content []byte) error {
	fresh := unfinished + name
	err := safefile.Create(folder, fresh, safefile.File{Mode: recordsMode, Content: content})
	if err == nil {
		err = folder.Rename(fresh, name)
	}
	if err != nil {
		return errors.Join(err, folder.RemoveAll(fresh))
	}
	return safefile.Sync(folder)
}
