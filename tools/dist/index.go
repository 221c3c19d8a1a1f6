package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// index lists the single providers of a release: what `countersign provider install` reads. Its
// signature covers their hashes, and its serial only grows, so that an old one is noticed.
type index struct {
	Format    int        `json:"format"`
	Serial    int64      `json:"serial"`
	Providers []provider `json:"providers"`
}

type provider struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	File    string `json:"file"`   // beside the index, packed by gzip
	Size    int64  `json:"size"`   // unpacked
	SHA256  string `json:"sha256"` // unpacked
}

// singles packs each provider of a platform on its own, and adds it to the index.
func (d *dist) singles(p platform) error {
	folder := filepath.Join(d.stage(p), providers)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), p.exe())
		if !strings.HasPrefix(name, providerPrefix) || strings.HasSuffix(name, ".minisig") {
			continue
		}
		if err := d.single(name, filepath.Join(folder, entry.Name()), p); err != nil {
			return err
		}
	}
	return nil
}

func (d *dist) single(name, path string, p platform) error {
	hash, size, err := sum(path)
	if err != nil {
		return err
	}
	file := d.name(name, p) + ".gz"
	d.index.Providers = append(d.index.Providers, provider{
		Name: strings.TrimPrefix(name, providerPrefix), Version: strings.TrimPrefix(d.version, "v"),
		OS: p.os, Arch: p.arch, File: file, Size: size, SHA256: hash,
	})
	if d.signer != nil {
		if err := copyFile(path+".minisig", filepath.Join(d.out, d.name(name, p)+".minisig"), 0o644); err != nil {
			return err
		}
	}
	return create(filepath.Join(d.out, file), func(w io.Writer) error {
		packed := gzip.NewWriter(w)
		return errors.Join(copyTo(packed, path), packed.Close())
	})
}

func (d *dist) writeIndex() error {
	d.index.Format, d.index.Serial = 1, d.time.Unix()
	text, err := json.MarshalIndent(d.index, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(d.out, "index.json")
	return errors.Join(writeFile(path, append(text, '\n'), 0o644), d.signer.sign(path, "countersign provider index "+d.version))
}
