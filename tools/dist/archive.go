package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// archive packs a stage: a zip for Windows, a tar.gz for others.
func (d *dist) archive(p platform) error {
	name, pack := d.name("countersign", p), tarGz
	suffix := ".tar.gz"
	if p.os == "windows" {
		pack, suffix = zipped, ".zip"
	}
	return create(filepath.Join(d.out, name+suffix), func(w io.Writer) error {
		return pack(w, d.stage(p), name, d.time)
	})
}

func create(path string, fill func(w io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(file), file.Close())
}

func tarGz(w io.Writer, folder, below string, when time.Time) error {
	packed := gzip.NewWriter(w) // without name and time
	return errors.Join(tarOf(packed, folder, below, when), packed.Close())
}

// tarOf packs a folder so that the bytes follow from the files' names and contents, and whether
// they can be run: they are root's, in the order of their names, and of one time.
func tarOf(w io.Writer, folder, below string, when time.Time) error {
	to := tar.NewWriter(w)
	err := walk(folder, func(file, name string, info fs.FileInfo) error {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(below, name), Mode: 0o644, Size: info.Size(), ModTime: when, Format: tar.FormatPAX}
		if info.IsDir() {
			header.Typeflag, header.Name, header.Size = tar.TypeDir, header.Name+"/", 0
		}
		if info.IsDir() || runs(info) {
			header.Mode = 0o755
		}
		if err := to.WriteHeader(header); err != nil || info.IsDir() {
			return err
		}
		return copyTo(to, file)
	})
	return errors.Join(err, to.Close())
}

func zipped(w io.Writer, folder, below string, when time.Time) error {
	to := zip.NewWriter(w)
	err := walk(folder, func(file, name string, info fs.FileInfo) error {
		if info.IsDir() {
			return nil
		}
		header := &zip.FileHeader{Name: path.Join(below, name), Method: zip.Deflate, Modified: when}
		header.SetMode(0o644)
		if runs(info) {
			header.SetMode(0o755)
		}
		entry, err := to.CreateHeader(header)
		if err != nil {
			return err
		}
		return copyTo(entry, file)
	})
	return errors.Join(err, to.Close())
}

func runs(info fs.FileInfo) bool { return info.Mode()&0o100 != 0 }

// walk calls visit with each file and folder below a folder, in lexical order.
func walk(folder string, visit func(file, name string, info fs.FileInfo) error) error {
	return filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == folder {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return errors.New(file + " is no file")
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		return visit(file, filepath.ToSlash(name), info)
	})
}

func copyTo(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}
