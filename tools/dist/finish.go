package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// finish writes the checksums of all files, the provenance of them, and the signatures.
func (d *dist) finish(platforms []platform) error {
	names, err := files(d.out)
	if err != nil {
		return err
	}
	var subjects []subject
	for _, name := range names {
		hash, _, err := sum(filepath.Join(d.out, name))
		if err != nil {
			return err
		}
		subjects = append(subjects, subject{name, map[string]string{"sha256": hash}})
	}
	path := filepath.Join(d.out, "provenance.json")
	text, err := json.MarshalIndent(d.provenance(subjects, platforms), "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(path, append(text, '\n'), 0o644); err != nil {
		return err
	}
	hash, _, err := sum(path)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, s := range append(subjects, subject{"provenance.json", map[string]string{"sha256": hash}}) {
		fmt.Fprintf(&sums, "%s  %s\n", s.Digest["sha256"], s.Name)
	}
	list := filepath.Join(d.out, "SHA256SUMS")
	return errors.Join(writeFile(list, []byte(sums.String()), 0o644),
		d.signer.sign(list, "countersign checksums "+d.version), d.signer.sign(path, "countersign provenance "+d.version))
}

// files are those of a release, without the stages.
func files(folder string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		if !entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// statement is an in-toto statement with a SLSA provenance: https://slsa.dev/spec/v1.0/provenance.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

type predicate struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string         `json:"buildType"`
	ExternalParameters   map[string]any `json:"externalParameters"`
	InternalParameters   map[string]any `json:"internalParameters,omitempty"`
	ResolvedDependencies []resource     `json:"resolvedDependencies"`
}

type resource struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest,omitempty"`
}

type runDetails struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// provenance names no time and no machine, so that every build of the release gives the same. The
// builder is the owner of the key that signs it.
func (d *dist) provenance(subjects []subject, platforms []platform) statement {
	names := make([]string, len(platforms))
	for i, p := range platforms {
		names[i] = p.String()
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", Subject: subjects, PredicateType: "https://slsa.dev/provenance/v1"}
	s.Predicate.BuildDefinition = buildDefinition{
		BuildType:          "https://" + house + "/blob/main/docs/releases.md",
		ExternalParameters: map[string]any{"version": d.version, "platforms": names},
		ResolvedDependencies: []resource{
			{"git+https://" + house + "@" + d.commit, map[string]string{"gitCommit": d.commit}},
			{URI: "pkg:generic/go@" + strings.TrimPrefix(d.toolchain, "go")},
		},
	}
	if d.modified {
		s.Predicate.BuildDefinition.InternalParameters = map[string]any{"modified": true}
	}
	s.Predicate.RunDetails.Builder.ID = "https://" + house + "/blob/main/tools/dist"
	return s
}
