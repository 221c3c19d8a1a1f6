package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	"github.com/countersign-dev/countersign/internal/text"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

// Input is everything that configures the agent, as main has read it.
type Input struct {
	// FileName is for sentences; File is its content. Default: no file.
	FileName string
	File     []byte
	// Environ is the environment, KEY=VALUE. Default: empty.
	Environ []string
	// Flags are in the order of the command line.
	Flags []Assignment
	// Command is what follows "--": the proxy and its arguments. Default: none.
	Command []string
}

// Read lays flags over the environment over the file over the defaults. The
// warnings are sentences about what was set and has no effect; the error joins
// one sentence for each thing that is wrong.
func Read(in Input) (c Config, warnings []string, err error) {
	c = defaults()
	var all problems
	if err := c.readFile(in.FileName, in.File); err != nil {
		return c, nil, err
	}
	own, err := fromEnvironment(in.Environ)
	all.check(err)
	istio, err := istiocompat.Translate(maps.Collect(variables(in.Environ)), in.given(own))
	all.check(err)
	c.choice = Choice(istio.Choice)
	var translated []Assignment
	for _, a := range istio.Assignments {
		translated = append(translated, Assignment(a))
		c.public[a.Path] = a.Origin
	}
	for _, layer := range [][]Assignment{translated, own, in.Flags} {
		for _, a := range layer {
			all.check(c.assign(a))
		}
	}
	if len(in.Command) > 0 {
		c.Proxy.Command = in.Command
	}
	c.readSockets(&all)
	c.UseEnviron(in.Environ)
	return c, istio.Warnings, all.err()
}

// given is what is set apart from Istio's variables, as far as it can be understood; Read
// reports what cannot.
func (in Input) given(own []Assignment) istiocompat.Given {
	c := defaults()
	_ = c.readFile(in.FileName, in.File)
	for _, a := range slices.Concat(own, in.Flags) {
		_ = c.assign(a)
	}
	g := istiocompat.Given{TrustDomain: cmp.Or(c.TrustDomain, defaults().TrustDomain), Gateway: c.Gateway.Enabled,
		Proxy: len(in.Command)+len(c.Proxy.Command) > 0, Admin: c.Proxy.Drain.Admin, HotRestart: c.Proxy.Reload.HotRestart, Chosen: istiocompat.Choice(c.chosen())}
	for _, p := range c.Providers {
		g.Providers = append(g.Providers, pluginhost.Entry{Name: p.Name, Provider: p.binary(), Settings: p.Settings})
	}
	return g
}

func (c *Config) readFile(name string, content []byte) error {
	written, err := decodeFile(valueOf(c), name, content)
	c.file, c.written = name, written
	c.lines = sync.OnceValue(func() map[string]int { return linesOf(content) }) // few ask
	return err
}

// decodeFile fills v, and returns which settings were there, by path.
func decodeFile(v reflect.Value, name string, content []byte) (map[string]bool, error) {
	asJSON, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, fmt.Errorf("%s is not valid YAML: %s", name, oneLine(err))
	}
	var tree any
	if err := json.Unmarshal(asJSON, &tree); err != nil {
		return nil, fmt.Errorf("%s is not valid YAML: %s", name, oneLine(err))
	}
	d := decoder{source: " in " + name, written: map[string]bool{}}
	if _, ok := tree.(map[string]any); !ok && tree != nil {
		return nil, fmt.Errorf("%s holds no settings: write them as \"name: value\", one a line", name)
	}
	d.fill(v, tree, "")
	return d.written, d.problems.err()
}

// oneLine makes one line of the YAML library's errors over several lines.
func oneLine(err error) string {
	words := strings.Join(strings.Fields(err.Error()), " ")
	return text.Clean(strings.TrimPrefix(words, "yaml: "))
}
