package main

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"golang.org/x/mod/module"
)

// writeBill writes the bill of materials of a platform's programs (CycloneDX): the programs with
// their hashes, and the modules that they record to be linked of, with their licences.
func (d *dist) writeBill(path string, p platform, built map[string]string, modules []module.Version) error {
	b := cdx.NewBOM()
	b.Metadata = &cdx.Metadata{
		Timestamp: d.time.Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{
			BOMRef: "countersign", Type: cdx.ComponentTypeApplication, Name: "countersign", Version: d.version,
			PackageURL: fmt.Sprintf("pkg:golang/%s@%s?goos=%s&goarch=%s", house, d.version, p.os, p.arch),
			Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		},
	}
	components := []cdx.Component{{
		BOMRef: "go", Type: cdx.ComponentTypeLibrary, Name: "std", Version: d.toolchain,
		PackageURL: "pkg:golang/std@" + d.toolchain[len("go"):], Licenses: &cdx.Licenses{{License: &cdx.License{ID: "BSD-3-Clause"}}},
	}}
	for _, name := range slices.Sorted(maps.Keys(built)) {
		hash, _, err := sum(built[name])
		if err != nil {
			return err
		}
		components = append(components, cdx.Component{
			BOMRef: name, Type: cdx.ComponentTypeFile, Name: name + p.exe(), Version: d.version,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hash}},
		})
	}
	for _, m := range modules {
		component, err := d.component(m)
		if err != nil {
			return err
		}
		components = append(components, component)
	}
	b.Components = &components
	dependencies, err := needs(built)
	if err != nil {
		return err
	}
	b.Dependencies = &dependencies
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b); err != nil {
		return err
	}
	if err := writeFile(path, text.Bytes(), 0o644); err != nil {
		return err
	}
	return writeFile(filepath.Join(d.out, d.name("countersign", p)+".cdx.json"), text.Bytes(), 0o644)
}

func (d *dist) component(m module.Version) (c cdx.Component, err error) {
	folder, err := d.builder.folder(m)
	if err != nil {
		return c, err
	}
	ids, err := identified(folder)
	if err != nil {
		return c, err
	}
	c = cdx.Component{BOMRef: purl(m), Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m)}
	if len(ids) > 0 {
		found := cdx.Licenses{}
		for _, id := range ids {
			found = append(found, cdx.LicenseChoice{License: &cdx.License{ID: id}})
		}
		c.Licenses = &found
	}
	return c, nil
}

func purl(m module.Version) string { return "pkg:golang/" + m.Path + "@" + m.Version }

// needs lists the modules that each program links.
func needs(built map[string]string) (all []cdx.Dependency, err error) {
	for _, name := range slices.Sorted(maps.Keys(built)) {
		modules, err := linked([]string{built[name]})
		if err != nil {
			return nil, err
		}
		refs := []string{"go"}
		for _, m := range modules {
			refs = append(refs, purl(m))
		}
		all = append(all, cdx.Dependency{Ref: name, Dependencies: &refs})
	}
	return all, nil
}
