package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Below a stage, which packages are made of, too.
const (
	binaries  = "bin"
	providers = "lib/countersign/providers"
	lockFile  = providers + "/countersign.lock" // a package's own, which no setting has to name
	licences  = "share/licenses/countersign"
	bill      = "share/countersign/sbom.cdx.json"
)

const providerPrefix = "countersign-provider-"

// stageAll lays out what each platform gets. The lock file of another platform follows from that
// of this one, because to write a lock each provider is started once. So do the manual pages and
// the completion, which the programs print.
func (d *dist) stageAll(platforms []platform) error {
	built, err := d.builder.build(host())
	if err != nil {
		return err
	}
	lock, err := hostLock(built)
	if err != nil {
		return err
	}
	for _, p := range platforms {
		if err := d.stageOne(p, lock, filepath.Dir(built["countersign"])); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

func (d *dist) stageOne(p platform, lock lockText, here string) error {
	built, err := d.builder.build(p)
	if err != nil {
		return err
	}
	if err := errors.Join(d.layOut(p, built, lock), d.pages(p, built, here)); err != nil {
		return err
	}
	modules, err := linked(slices.Collect(maps.Values(built)))
	if err != nil {
		return err
	}
	stage := d.stage(p)
	return errors.Join(d.writeLicences(filepath.Join(stage, licences), modules), d.writeBill(filepath.Join(stage, bill), p, built, modules))
}

// layOut copies the programs, signs the providers, and writes the lock file.
func (d *dist) layOut(p platform, built map[string]string, lock lockText) error {
	stage := d.stage(p)
	for _, name := range slices.Sorted(maps.Keys(built)) {
		folder := binaries
		if strings.HasPrefix(name, providerPrefix) {
			folder = providers
		}
		to := filepath.Join(stage, folder, name+p.exe())
		if err := copyFile(built[name], to, 0o755); err != nil {
			return err
		}
		if folder == providers {
			if err := d.signer.sign(to, signedName(name, d.version, p)); err != nil {
				return err
			}
		}
	}
	return lock.write(p, stage)
}

// signedName is the name in the signature of a provider: a signed provider cannot pass for another,
// an older one or one for another platform.
func signedName(name, version string, p platform) string {
	return fmt.Sprintf("%s %s %s", name, strings.TrimPrefix(version, "v"), p)
}

// lockText is a lock file.
type lockText struct {
	Format    int              `json:"format"`
	Providers []map[string]any `json:"providers"`
	Programs  []map[string]any `json:"programs,omitempty"`
}

// hostLock has this platform's providers and servers locked.
func hostLock(built map[string]string) (l lockText, err error) {
	temp, err := os.MkdirTemp("", "countersign-dist-")
	if err != nil {
		return l, err
	}
	defer os.RemoveAll(temp)
	args := []string{"provider", "lock", "--provider-dir", temp, "--lock", filepath.Join(temp, "lock")}
	for _, name := range slices.Sorted(maps.Keys(built)) {
		if name == "countersign" { // it verifies all others
			continue
		}
		args = append(args, strings.TrimPrefix(name, providerPrefix))
		if err := copyFile(built[name], filepath.Join(temp, name+host().exe()), 0o755); err != nil {
			return l, err
		}
	}
	cmd := exec.Command(built["countersign"], args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + temp} // the agent refuses variables that it does not know
	if out, err := cmd.CombinedOutput(); err != nil {
		return l, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	text, err := os.ReadFile(filepath.Join(temp, "lock"))
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	return l, err
}

// write writes the lock file of a platform, with the hashes of its files in a stage.
func (l lockText) write(p platform, stage string) error {
	if p.os != "linux" { // the servers are for Linux alone
		l.Programs = nil
	}
	for _, program := range l.Programs {
		hash, _, err := sum(filepath.Join(stage, binaries, program["name"].(string)))
		if err != nil {
			return err
		}
		program["os"], program["arch"], program["sha256"] = p.os, p.arch, hash
	}
	for _, provider := range l.Providers {
		name := providerPrefix + provider["name"].(string) + p.exe()
		hash, _, err := sum(filepath.Join(stage, providers, name))
		if err != nil {
			return err
		}
		provider["os"], provider["arch"], provider["file"], provider["sha256"] = p.os, p.arch, name, hash
	}
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(stage, lockFile), append(text, '\n'), 0o644)
}

func writeFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, content, mode), os.Chmod(path, mode)) // whatever the umask is
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := writeFile(to, nil, mode); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
