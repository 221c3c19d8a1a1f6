package filesecret

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// System stands for the operating system's roots, in place of a path.
const System = "system"

const (
	// maxFile bounds the size of a file. An operating system's bundle has about 220 kB.
	maxFile = 1 << 20
	// maxSystem bounds the total size read, in bytes.
	maxSystem = 4 << 20
)

// systemFiles and systemFolders are where operating systems keep their roots, as in
// crypto/x509. The first existing file counts; if there is none, all folders do.
var (
	systemFiles = []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Alpine
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL 6
		"/etc/ssl/ca-bundle.pem",                            // SUSE
		"/etc/pki/tls/cacert.pem",                           // OpenELEC
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL 7
		"/etc/ssl/cert.pem",                                 // Alpine, macOS, BSD
	}
	systemFolders = []string{"/etc/ssl/certs", "/etc/pki/tls/certs"}
)

// systemPlaces returns the files and folders to read the system's roots from.
func systemPlaces(configured []string) []string {
	if len(configured) > 0 {
		return configured
	}
	for _, file := range systemFiles {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return []string{file}
		}
	}
	return systemFolders
}

// systemPaths returns every file that may hold system roots: the places, with folders
// replaced by the files in them.
func systemPaths(places []string) []string {
	var paths []string
	for _, place := range places {
		entries, err := os.ReadDir(place)
		if err != nil {
			paths = append(paths, place) // a file, or missing
			continue
		}
		for _, entry := range entries {
			paths = append(paths, filepath.Join(place, entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths
}

// readSystem returns the concatenated PEM of all files. It skips unreadable files if
// another one can be read: folders of roots contain all kinds of files.
func readSystem(paths []string) ([]byte, error) {
	var all bytes.Buffer
	var errs []error
	for _, path := range paths {
		content, err := readFile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all.Write(content)
		all.WriteByte('\n')
		if all.Len() > maxSystem {
			return nil, fmt.Errorf("the system's roots have more than %d bytes", maxSystem)
		}
	}
	if all.Len() == 0 {
		return nil, fmt.Errorf("the system's roots cannot be read: %w", errors.Join(errs...))
	}
	return all.Bytes(), nil
}
