package main

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image is a container image: a program, and the providers with their lock file.
type image struct{ program, about string }

var allImages = []image{
	{"countersign", "The agent and its providers: certificates from any CA, kept fresh in any proxy"},
	{"countersign-discovery", "The discovery service for many clusters"},
	{"countersign-ra", "The registration authority for Kubernetes"},
}

// images writes each image for all of Linux's platforms, as an OCI layout in a tar file.
func (d *dist) images(platforms []platform) error {
	var errs []error
	for _, i := range allImages {
		errs = append(errs, d.image(i, platforms))
	}
	return errors.Join(errs...)
}

func (d *dist) image(i image, platforms []platform) error {
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	found := false
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		found = true
		built, err := d.built(i, p)
		if err != nil {
			return err
		}
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: built, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: p.os, Architecture: p.arch},
		}})
	}
	if !found {
		return nil
	}
	// One entry, as tools that take one image from a layout want it.
	named := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: all, Descriptor: v1.Descriptor{
		Annotations: map[string]string{"org.opencontainers.image.ref.name": strings.TrimPrefix(d.version, "v")},
	}})
	temp, err := os.MkdirTemp("", "countersign-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if _, err := layout.Write(temp, named); err != nil {
		return err
	}
	file := filepath.Join(d.out, i.program+"_"+d.version+".oci.tar")
	manifest, err := all.RawManifest()
	if err != nil {
		return err
	}
	return errors.Join(create(file, func(w io.Writer) error { return tarOf(w, temp, "", d.time) }),
		d.signer.signTo(signatureOf(file), bytes.NewReader(manifest), "countersign image "+i.program+" "+d.version))
}

// built puts what seldom changes and what images share into layers of their own.
func (d *dist) built(i image, p platform) (v1.Image, error) {
	program := func(to *layer) error {
		return to.file("usr/bin/"+i.program, filepath.Join(d.stage(p), binaries, i.program))
	}
	layers := []func(to *layer) error{d.base, d.papers(p), d.providers(p), program}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, fill := range layers {
		made, err := d.layer(fill)
		if err != nil {
			return nil, err
		}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: made, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: d.time}}}); err != nil {
			return nil, err
		}
	}
	return mutate.ConfigFile(img, d.config(img, i, p))
}

func (d *dist) config(img v1.Image, i image, p platform) *v1.ConfigFile {
	config, _ := img.ConfigFile() // cannot fail: it is in memory
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, v1.Time{Time: d.time}
	config.Config = v1.Config{
		User: "1337:1337", Entrypoint: []string{"/usr/bin/" + i.program}, WorkingDir: "/", Env: []string{"PATH=/usr/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":       i.program,
			"org.opencontainers.image.description": i.about,
			"org.opencontainers.image.version":     strings.TrimPrefix(d.version, "v"),
			"org.opencontainers.image.revision":    d.commit,
			"org.opencontainers.image.source":      "https://" + house,
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
	return config
}

// layer is a tar file that is being written.
type layer struct {
	*tar.Writer
	dist *dist
	has  map[string]bool
}

func (d *dist) layer(fill func(to *layer) error) (v1.Layer, error) {
	var text bytes.Buffer
	to := &layer{tar.NewWriter(&text), d, map[string]bool{}}
	if err := errors.Join(fill(to), to.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
}

//go:embed mpl-2.0.txt
var mpl []byte

const aboutRoots = `/etc/ssl/certs/ca-certificates.crt has the roots of Mozilla's list of CAs that
are trusted for TLS. The list is under the Mozilla Public License 2.0 (LICENSE); its source is
lib/ckfw/builtins/certdata.txt in https://hg.mozilla.org/projects/nss.
`

// base has the roots of the Web's CAs, and a user with a folder to work in.
func (d *dist) base(to *layer) error {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file cannot tell the constraint
			if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
				return err
			}
		}
	}
	return errors.Join(
		to.text("etc/ssl/certs/ca-certificates.crt", roots.Bytes()),
		to.text("usr/share/licenses/ca-certificates/LICENSE", mpl),
		to.text("usr/share/licenses/ca-certificates/README", []byte(aboutRoots)),
		to.text("etc/passwd", []byte("root:x:0:0:root:/:/sbin/nologin\ncountersign:x:1337:1337:countersign:/:/sbin/nologin\n")),
		to.text("etc/group", []byte("root:x:0:\ncountersign:x:1337:\n")),
		to.folder("run"),
		to.WriteHeader(to.dist.header(tar.Header{Typeflag: tar.TypeDir, Name: "run/countersign/", Mode: 0o700, Uid: 1337, Gid: 1337})),
		to.WriteHeader(to.dist.header(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777})),
	)
}

// papers are the licences and the bill of materials.
func (d *dist) papers(p platform) func(to *layer) error {
	return func(to *layer) error {
		return errors.Join(to.below("usr/"+licences, filepath.Join(d.stage(p), licences)), to.file("usr/"+bill, filepath.Join(d.stage(p), bill)))
	}
}

func (d *dist) providers(p platform) func(to *layer) error {
	return func(to *layer) error {
		return errors.Join(to.below("usr/lib", filepath.Join(d.stage(p), "lib")),
			// Where packages have it, too, and configurations name it.
			to.WriteHeader(d.header(tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/lib/countersign/countersign.lock", Linkname: "providers/countersign.lock", Mode: 0o777})))
	}
}

func (d *dist) header(h tar.Header) *tar.Header {
	h.ModTime, h.Format = d.time, tar.FormatPAX
	return &h
}

// below adds a folder with all that is in it.
func (l *layer) below(name, from string) error {
	return walk(from, func(file, rest string, info os.FileInfo) error {
		if info.IsDir() {
			return nil // made with its first file
		}
		return l.file(name+"/"+rest, file)
	})
}

func (l *layer) file(name, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if runs(info) {
		mode = 0o755
	}
	return l.put(name, content, mode)
}

func (l *layer) text(name string, content []byte) error { return l.put(name, content, 0o644) }

func (l *layer) put(name string, content []byte, mode int64) error {
	if err := l.folder(filepath.ToSlash(filepath.Dir(name))); err != nil {
		return err
	}
	if err := l.WriteHeader(l.dist.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))})); err != nil {
		return err
	}
	_, err := l.Write(content)
	return err
}

// folder adds a folder and those above it, each once.
func (l *layer) folder(name string) error {
	if name == "." || l.has[name] {
		return nil
	}
	if err := l.folder(filepath.ToSlash(filepath.Dir(name))); err != nil {
		return err
	}
	l.has[name] = true
	return l.WriteHeader(l.dist.header(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}))
}
