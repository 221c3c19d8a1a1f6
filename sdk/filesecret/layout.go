package filesecret

import (
	"os"
	"path/filepath"
)

// Layout is where a platform mounts a workload's files.
type Layout struct{ Chain, Key, Roots string }

// Folders into which platforms mount files, relative to the working directory, as Istio's
// agent looks for them.
const (
	CredentialsFolder  = "./var/run/secrets/workload-spiffe-credentials"
	CertificatesFolder = "./etc/certs"
)

// Layouts returns the known layouts; use the first that exists.
func Layouts() []Layout {
	return []Layout{
		istioLayout(CredentialsFolder),
		{
			filepath.Join(CredentialsFolder, "certificates.pem"), filepath.Join(CredentialsFolder, "private_key.pem"),
			filepath.Join(CredentialsFolder, "ca_certificates.pem"),
		},
		istioLayout(CertificatesFolder),
	}
}

func istioLayout(folder string) Layout {
	return Layout{filepath.Join(folder, "cert-chain.pem"), filepath.Join(folder, "key.pem"), filepath.Join(folder, "root-cert.pem")}
}

// HasPair reports whether the chain and the key exist now.
func (l Layout) HasPair() bool { return isThere(l.Chain) && isThere(l.Key) }

// HasRoots reports whether the roots exist now.
func (l Layout) HasRoots() bool { return isThere(l.Roots) }

func isThere(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
