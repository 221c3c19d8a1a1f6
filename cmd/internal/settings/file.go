package settings

import (
	"fmt"
	"os"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/host/safefile"
)

const maxFile = 1 << 20

// ReadFile returns the content of a configuration file.
func ReadFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer file.Close()
	text, err := safefile.ReadAll(file, name, maxFile)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return text, nil
}

// OvertakenPins returns a note for each pin that an upgrade of a package makes wrong; none without c.
func OvertakenPins(env environ.Vars, c *agent.Config) []string {
	if c == nil {
		return nil
	}
	return wiring.OvertakenPins(c, wiring.SearchDirs(env, c.ProviderDirs))
}

// Pin applies to the providers of c the environment, the lock file's pins, and what packages have
// pinned, if the configuration names no lock file. A package's are not watched: a provider that runs is one that
// was verified, and the next start takes what is installed then.
func Pin(env environ.Vars, c *agent.Config) error {
	if env != nil {
		c.UseEnviron(env)
	}
	if path, wanted := c.LockPath(); path != "" {
		locked, err := wiring.Locked(path, wanted)
		if err == nil {
			err = c.Pin(path, locked)
		}
		if err != nil || wanted {
			return err
		}
	}
	return wiring.PinInstalled(c, wiring.SearchDirs(env, c.ProviderDirs), func(string) {})
}
