// Package credentialfolder reads credential folders as strictly as SPIFFE's Filesystem Delivery
// standard defines them, for tests of what writes them. It is written from the standard alone and
// shares no code with the project: [Load] returns the identity, [Verify] verifies a peer.
package credentialfolder

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
)

const (
	credentials = "credential-bundle.private-key.pem" // section 2
	bundle      = ".spiffe-trust-bundle.pem"          // behind the trust domain
)

// Identity is the X.509-SVID of a folder.
type Identity struct {
	ID    string
	Key   crypto.Signer
	Chain []*x509.Certificate // leaf first
}

// Load reads the credential bundle by opening it once (section 3.2), and verifies its chain with the
// roots of its own trust domain.
func Load(folder fs.FS) (Identity, error) {
	var id Identity
	blocks, err := open(folder, credentials)
	if err != nil {
		return id, err
	}
	if len(blocks) < 2 || blocks[0].Type != "PRIVATE KEY" {
		return id, fmt.Errorf("%s has %d blocks, the first of type %q", credentials, len(blocks), blocks[0].Type)
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks[0].Bytes)
	if err != nil {
		return id, fmt.Errorf("%s: %w", credentials, err)
	}
	id.Key, _ = key.(crypto.Signer)
	if id.Chain, err = certificates(blocks[1:]); err != nil {
		return id, fmt.Errorf("%s: %w", credentials, err)
	}
	if public, ok := id.Key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(id.Chain[0].PublicKey) {
		return id, errors.New("the leaf is not issued to the private key")
	}
	if err := ordered(id.Chain); err != nil {
		return id, err
	}
	id.ID, err = Verify(folder, id.Chain)
	return id, err
}

// Verify returns the SPIFFE ID of a peer, whose chain leads to a trust anchor of its trust domain in the
// folder (section 3.3) and does not contain it.
func Verify(folder fs.FS, chain []*x509.Certificate) (string, error) {
	id, domain, err := identify(chain[0])
	if err != nil {
		return "", err
	}
	anchors, err := Roots(folder, domain)
	if err != nil {
		return "", fmt.Errorf("%s is not federated: %w", domain, err)
	}
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, anchor := range anchors {
		opts.Roots.AddCert(anchor)
		for _, c := range chain {
			if c.Equal(anchor) {
				return "", errors.New("the chain contains its trust anchor")
			}
		}
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(opts); err != nil {
		return "", fmt.Errorf("%s: %w", id, err)
	}
	return id, nil
}

// Roots reads the trust bundle of one trust domain (section 2.2).
func Roots(folder fs.FS, domain string) ([]*x509.Certificate, error) {
	blocks, err := open(folder, domain+bundle)
	if err != nil {
		return nil, err
	}
	anchors, err := certificates(blocks)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", domain, bundle, err)
	}
	return anchors, nil
}

// open returns the PEM blocks of a file, which has nothing else: no text between, no headers.
func open(folder fs.FS, name string) (all []*pem.Block, err error) {
	text, err := fs.ReadFile(folder, name)
	if err != nil {
		return nil, err
	}
	for len(text) > 0 {
		block, rest := pem.Decode(text)
		if block == nil || len(block.Headers) > 0 || !bytes.Equal(text[:len(text)-len(rest)], pem.EncodeToMemory(block)) {
			return nil, fmt.Errorf("%s has something else than PEM blocks without headers", name)
		}
		all, text = append(all, block), rest
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s is empty", name)
	}
	return all, nil
}

func certificates(blocks []*pem.Block) (all []*x509.Certificate, err error) {
	for _, b := range blocks {
		if b.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a block is of type %q", b.Type)
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// ordered demands leaf-to-root order without a self-signed certificate.
func ordered(chain []*x509.Certificate) error {
	for i, c := range chain {
		if c.CheckSignatureFrom(c) == nil {
			return fmt.Errorf("certificate %d of the chain is self-signed", i+1)
		}
		if i > 0 && chain[i-1].CheckSignatureFrom(c) != nil {
			return fmt.Errorf("certificate %d of the chain has not signed the one before", i+1)
		}
	}
	return nil
}

// identify returns the SPIFFE ID and the trust domain of a leaf (X.509-SVID, sections 2 and 4).
func identify(leaf *x509.Certificate) (id, domain string, err error) {
	if len(leaf.URIs) != 1 || leaf.IsCA || leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		return "", "", errors.New("the leaf is not an X.509-SVID")
	}
	u := *leaf.URIs[0]
	plain := url.URL{Scheme: "spiffe", Host: u.Host, Path: u.Path}
	if u != plain || u.Host == "" || strings.Trim(u.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return "", "", fmt.Errorf("%q is not a SPIFFE ID", &u)
	}
	return u.String(), u.Host, nil
}
