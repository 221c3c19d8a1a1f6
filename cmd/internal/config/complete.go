package config

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

const minTTL = time.Second

// Complete fills in what follows from the rest ("default", "ROOTCA", each secret's
// provider, key type and lifetime) and checks everything. The error joins one
// sentence for each thing that is wrong.
func (c *Config) Complete() error {
	var p problems
	c.warnings = nil
	c.completeBroker(&p)
	c.completeWorkloads(&p)
	c.completeSpire(&p)
	c.completeFiles(&p)
	c.checkProviders(&p)
	c.checkRest(&p)
	c.checkProxy(&p)
	c.checkState(&p)
	c.checkStore(&p)
	if err := p.err(); err != nil {
		return err // what a secret refers to has to be sound first
	}
	bound := slices.IndexFunc(c.Secrets, func(s Secret) bool { return s.Name == DefaultSecret && s.Provider+strings.Join(s.Providers, "") != "" }) >= 0
	c.completeSecrets(&p)
	c.checkSigner(&p)
	c.settleChoice(bound)
	c.completeEndpoints(&p)
	c.checkMetricsSecrets(&p)
	c.completeOutputs(&p)
	c.completeCRLs(&p)
	c.completeWorkloadAPI(&p)
	c.completePublishBundle(&p)
	c.completeGateway(&p)
	return p.err()
}

// Choice returns who signs "default", and why; of a complete configuration.
func (c *Config) Choice() Choice { return c.choice }

// settleChoice keeps the choice of the variables where nothing has overruled it.
func (c *Config) settleChoice(bound bool) {
	if c.FromFiles(DefaultSecret) {
		c.choice = Choice{Rule: "it is in files"}
		return
	}
	if c.FromSpire(DefaultSecret) {
		c.choice = Choice{Rule: "a SPIFFE Workload API has it"}
		return
	}
	if c.elsewhere(DefaultSecret) {
		c.choice = Choice{Rule: c.foreignRule()}
		return
	}
	if slices.Contains(c.absent, DefaultSecret) {
		c.choice = Choice{Rule: "no setting gives the workload an identity"}
		return
	}
	if len(c.Secrets[0].Providers) == 0 {
		return // no provider signs it, which is reported already
	}
	switch signer := c.Secrets[0].Providers[0]; {
	case bound:
		c.choice = Choice{Entry: signer, Rule: "secrets." + DefaultSecret + " names it"}
	case signer != c.choice.Entry:
		c.choice = c.chosen()
	}
	for _, p := range c.Providers {
		if p.Name == c.choice.Entry {
			c.choice.Provider = p.binary()
		}
	}
}

// say is problems.say with the variable or flag that the value came from.
func (c *Config) say(p *problems, path string, value any, allowed string) {
	source := ""
	if origin := c.origins[path]; origin != "" {
		source = " (from " + origin + ")"
	}
	p.say(path, shown(value), source, allowed)
}

func shown(value any) string {
	if value == "" {
		return "not set"
	}
	if text, ok := value.(string); ok {
		return fmt.Sprintf("%.256q", text)
	}
	return fmt.Sprint(value)
}

func (c *Config) checkProviders(p *problems) {
	if len(c.Providers) == 0 && !c.needsProvider() {
		return
	}
	seen := map[string]bool{}
	for i := range c.Providers {
		c.checkProvider(p, &c.Providers[i], i)
		if name := c.Providers[i].Name; seen[name] {
			p.add(fmt.Errorf("providers has %.256q twice: give each its own name, and the binary's in \"provider\"", name))
		}
		seen[c.Providers[i].Name] = true
	}
	if c.DefaultProvider != "" && !seen[c.DefaultProvider] {
		c.say(p, "default_provider", c.DefaultProvider, "configured are "+strings.Join(c.providerNames(), ", "))
	}
	if c.DefaultProvider == "" && len(c.Providers) == 1 {
		c.DefaultProvider = c.Providers[0].Name
	}
}

func (c *Config) checkProvider(p *problems, entry *Provider, i int) {
	if !wire.ValidName(entry.Name) {
		c.say(p, fmt.Sprintf("providers.%d.name", i), entry.Name, "write 1 to 63 of a-z, 0-9 and -, the first no -")
		return
	}
	path := "providers." + entry.Name
	entry.Provider = cmp.Or(entry.Provider, entry.Name)
	if !wire.ValidName(entry.Provider) {
		c.say(p, path+".provider", entry.Provider, "write the name of an installed provider, 1 to 63 of a-z, 0-9 and -")
	}
	entry.SHA256 = strings.ToLower(entry.SHA256)
	switch {
	case entry.SHA256 == "" && !c.Dev && !entry.unpinned() && !entry.Missing:
		c.say(p, path+".sha256", "", `write the SHA-256 of the binary, which "countersign provider list" shows, run "countersign provider lock", or use --dev outside production`)
	case entry.SHA256 != "" && !sha256Hex().MatchString(entry.SHA256):
		c.say(p, path+".sha256", entry.SHA256, `write 64 hexadecimal digits, as "countersign provider list" shows them`)
	}
	c.settleAddress(p, entry, path)
	c.checkLimits(p, entry.Limits, path+".limits.")
	c.completeToken(p, entry, path)
	c.checkSecrets(p, *entry, path)
	c.checkTrust(p, &entry.Trust, path)
}

func (c *Config) checkLimits(p *problems, l Limits, path string) {
	for _, limit := range []struct {
		name  string
		value any
		ok    bool
		least any
	}{
		{"memory", int64(l.Memory), l.Memory == 0 || l.Memory >= pluginhost.MinMemory, pluginhost.MinMemory},
		{"descriptors", l.Descriptors, l.Descriptors == 0 || l.Descriptors >= pluginhost.MinDescriptors, pluginhost.MinDescriptors},
		{"processes", l.Processes, l.Processes == 0 || l.Processes >= pluginhost.MinProcesses, pluginhost.MinProcesses},
		{"cpu", l.CPU, l.CPU == 0 || l.CPU >= pluginhost.MinCPU, pluginhost.MinCPU},
	} {
		if !limit.ok {
			c.say(p, path+limit.name, limit.value, fmt.Sprintf("write %v or more, or leave it out for no limit", limit.least))
		}
	}
}

var sha256Hex = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{64}$`)
})

func (c *Config) checkTrust(p *problems, t *Trust, path string) {
	if t.IdentityCheck != "" {
		c.oneOf(p, path+".identity_check", t.IdentityCheck, "exact", "trust-domain", "any")
	}
	if t.RootOverlap != nil && t.RootOverlap.Duration < 0 {
		c.say(p, path+".root_overlap", t.RootOverlap, "write 0s or more")
	}
}

func (c *Config) oneOf(p *problems, path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		c.say(p, path, value, "must be "+strings.Join(allowed[:len(allowed)-1], ", ")+" or "+allowed[len(allowed)-1])
	}
}

func (c *Config) checkRest(p *problems) {
	if r := c.Rotation.Ratio; !(r > 0 && r < 1) { // not NaN either
		c.say(p, "rotation.ratio", r, "write more than 0 and less than 1")
	}
	if j := c.Rotation.Jitter; !(j >= 0 && j < 1) || math.IsNaN(j) {
		c.say(p, "rotation.jitter", j, "write 0 or more and less than 1")
	}
	c.needSocket(p, "socket.path", c.Socket.Path)
	c.needSocket(p, "socket.files_path", c.Socket.FilesPath)
	if c.Socket.Path == c.Socket.FilesPath {
		c.say(p, "socket.files_path", c.Socket.FilesPath, "that is socket.path; it is for when another program serves that one")
	}
	c.checkStatus(p)
	if s := c.Socket; s.Enabled && len(s.AllowUIDs)+len(s.AllowGIDs) > 0 && s.Mode&0o022 == 0 {
		c.warn("socket.allow_uids and allow_gids have no effect with socket.mode %q: other users may not open the socket; write \"0660\" or \"0666\"", s.Mode)
	}
	c.oneOf(p, "socket.spiffe_validator", c.Socket.SPIFFEValidator, "auto", "always", "never")
	c.oneOf(p, "log.level", c.Log.Level, words["log.level"]...)
	c.oneOf(p, "log.format", c.Log.Format, words["log.format"]...)
	if c.DrainTimeout.Duration < 0 {
		c.say(p, "drain_timeout", c.DrainTimeout, "write 0s or more")
	}
	if _, err := pki.ParseKeyType(c.KeyType); err != nil {
		c.say(p, "key_type", c.KeyType, keyTypeFault(c.KeyType, err))
	}
	if c.TTL.Duration < minTTL {
		c.say(p, "ttl", c.TTL, "write 1s or more")
	}
}

// readSockets replaces each socket by its path: programs elsewhere name it by a URI.
func (c *Config) readSockets(p *problems) {
	for setting, at := range map[string]*string{
		"socket.path": &c.Socket.Path, "socket.files_path": &c.Socket.FilesPath, "workload_api.socket": &c.WorkloadAPI.Socket,
		"gateway.socket": &c.Gateway.Socket, "spire.socket": &c.Spire.Socket,
	} {
		if *at == "" {
			continue
		}
		if path := c.socketPath(p, setting, *at); path != "" {
			*at = path
		}
	}
}

// socketPath returns the path of a socket that a setting names, or "" after a problem.
func (c *Config) socketPath(p *problems, setting, named string) string {
	path, err := unixsocket.ParsePath(named)
	if err != nil {
		c.say(p, setting, named, err.Error())
		return ""
	}
	return path
}

func (c *Config) needSocket(p *problems, setting, path string) {
	if path == "" {
		c.say(p, setting, "", "write the path of a unix socket")
	}
}

// keyTypeFault returns what to write instead, or why this build lacks what was written.
func keyTypeFault(keyType string, err error) string {
	if known := words["key_type"]; !slices.Contains(known, keyType) {
		return "must be " + strings.Join(known[:len(known)-1], ", ") + " or " + known[len(known)-1]
	}
	return err.Error()
}

func (c *Config) providerNames() []string {
	var names []string
	for _, entry := range c.Providers {
		names = append(names, entry.Name)
	}
	return names
}
