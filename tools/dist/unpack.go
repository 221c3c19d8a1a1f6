package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// untar unpacks what this program has packed.
func untar(file, to string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	for reader := tar.NewReader(in); ; {
		header, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case header.Typeflag == tar.TypeDir:
			err = root.MkdirAll(strings.TrimSuffix(header.Name, "/"), 0o755)
		default:
			err = fill(root, header.Name, reader)
		}
		if err != nil {
			return err
		}
	}
}

func fill(root *os.Root, name string, from io.Reader) error {
	out, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// fileIn returns a file of a .tgz.
func fileIn(packed []byte, name string) ([]byte, error) {
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if header.Name == name {
			return io.ReadAll(reader)
		}
	}
}
