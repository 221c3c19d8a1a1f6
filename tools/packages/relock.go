package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// relock pins the programs that are packed. The lock file of the stage tells what its
// providers are by asking those of this machine, which have another architecture's hashes.
func relock(folder, arch string) error {
	path := filepath.Join(folder, "countersign.lock")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var lock struct {
		Format    int              `json:"format"`
		Providers []map[string]any `json:"providers"`
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, p := range lock.Providers {
		sum, err := hashOf(filepath.Join(folder, filepath.Base(fmt.Sprint(p["file"]))))
		if err != nil {
			return err
		}
		p["arch"], p["sha256"] = arch, sum
	}
	text, err = json.MarshalIndent(lock, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func hashOf(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
