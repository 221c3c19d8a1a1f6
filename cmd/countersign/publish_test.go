package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"aead.dev/minisign"
	"github.com/rogpeppe/go-internal/testscript"
)

// publish KEY FOLDER SERIAL VERSION puts an index of that serial into the folder, with the
// provider odd as one of that version, and signs both. KEY.pub is the public key.
func publish(ts *testscript.TestScript, odd string, args []string) {
	folder, version := ts.MkAbs(args[1]), args[3]
	serial, err := strconv.ParseInt(args[2], 10, 64)
	ts.Check(err)
	key := publisherKey(ts, args[0])
	binary, err := os.ReadFile(odd)
	ts.Check(err)
	hash := sha256.Sum256(binary)
	index, err := json.Marshal(map[string]any{"format": 1, "serial": serial, "providers": []any{map[string]any{
		"name": "odd", "version": version, "os": runtime.GOOS, "arch": runtime.GOARCH,
		"file": "odd.gz", "size": len(binary), "sha256": hex.EncodeToString(hash[:]),
	}}})
	ts.Check(err)
	ts.Check(os.MkdirAll(folder, 0o755))
	for name, text := range map[string][]byte{
		"index.json": index, "index.json.minisig": signed(ts, key, index, "an index"), "odd.gz": gzipped(ts, binary),
		"odd.minisig": signed(ts, key, binary, fmt.Sprintf("countersign-provider-odd %s %s/%s", version, runtime.GOOS, runtime.GOARCH)),
	} {
		ts.Check(os.WriteFile(filepath.Join(folder, name), text, 0o644))
	}
}

// publisherKey returns a key of this script, made when it is first named.
func publisherKey(ts *testscript.TestScript, name string) (key minisign.PrivateKey) {
	path := ts.MkAbs(name)
	text, err := os.ReadFile(path)
	if err == nil {
		ts.Check(key.UnmarshalText(text))
		return key
	}
	public, key, err := minisign.GenerateKey(nil)
	ts.Check(err)
	text, err = key.MarshalText()
	ts.Check(err)
	ts.Check(os.WriteFile(path, text, 0o600))
	text, err = public.MarshalText()
	ts.Check(err)
	ts.Check(os.WriteFile(path+".pub", text, 0o644))
	return key
}

func signed(ts *testscript.TestScript, key minisign.PrivateKey, text []byte, comment string) []byte {
	r := minisign.NewReader(bytes.NewReader(text))
	_, err := new(bytes.Buffer).ReadFrom(r)
	ts.Check(err)
	return r.SignWithComments(key, comment, "")
}

func gzipped(ts *testscript.TestScript, text []byte) []byte {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.NoCompression)
	ts.Check(err)
	_, err = w.Write(text)
	ts.Check(errors.Join(err, w.Close()))
	return packed.Bytes()
}
