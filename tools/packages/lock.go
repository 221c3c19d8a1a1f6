package main

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// lockText is a lock file, whose entries stay as they are.
type lockText struct {
	Format    int               `json:"format"`
	Providers []json.RawMessage `json:"providers"`
	Programs  []json.RawMessage `json:"programs,omitempty"`
}

// splitLock writes the part of the stage's lock file that pins what a package holds.
func (r release) splitLock(p part) (path string, err error) {
	text, err := os.ReadFile(filepath.Join(r.stage, providerFolder, "countersign.lock"))
	if err != nil {
		return "", err
	}
	var whole lockText
	if err := json.Unmarshal(text, &whole); err != nil {
		return "", err
	}
	own := lockText{Format: whole.Format, Providers: []json.RawMessage{}}
	if own.Providers, err = pinsOf(p, own.Providers, whole.Providers, providerPrefix); err != nil {
		return "", err
	}
	if own.Programs, err = pinsOf(p, nil, whole.Programs, ""); err != nil {
		return "", err
	}
	if text, err = json.MarshalIndent(own, "", "  "); err != nil {
		return "", err
	}
	path = filepath.Join(r.work, p.lockName())
	return path, os.WriteFile(path, append(text, '\n'), 0o644)
}

// pinsOf adds the entries of a package's files, which are named prefix and the entry's name.
func pinsOf(p part, to, from []json.RawMessage, prefix string) ([]json.RawMessage, error) {
	for _, entry := range from {
		var named struct{ Name string }
		if err := json.Unmarshal(entry, &named); err != nil {
			return nil, err
		}
		if owner(prefix+named.Name) == p.name {
			to = append(to, entry)
		}
	}
	return to, nil
}
