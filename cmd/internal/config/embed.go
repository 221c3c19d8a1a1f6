package config

import (
	"reflect"
	"sync"
)

// File is a file of another program that [Decode] has read.
type File struct{ config Config }

// Decode fills into, a pointer to a struct with JSON names, from YAML as strictly as the
// agent reads its own: for a program with another file, of the types here. The error joins
// one sentence for each thing that is wrong.
func Decode(into any, name string, content []byte) (File, error) {
	written, err := decodeFile(reflect.ValueOf(into).Elem(), name, content)
	return File{Config{
		file: name, written: written, lines: sync.OnceValue(func() map[string]int { return linesOf(content) }),
	}}, err
}

// Explain is [Config.Explain] for what the file was decoded into.
func (f File) Explain(of any) []Explained {
	e := explainer{config: &f.config}
	e.walk(reflect.ValueOf(of).Elem(), "")
	return e.all
}

// Own is the configuration of a program that holds these secrets by these providers and
// serves them itself: nothing is read from an environment or from mounted files, and where
// there is a lock file, it is beside the file of that name. It is to be completed; "default"
// needs an entry among the secrets.
func Own(file string, plugins Plugins, secrets []Secret) Config {
	c := defaults()
	c.file, c.Plugins, c.Secrets = file, plugins, secrets
	c.Files.Mounted = MountedOff
	return c
}

// Host is the configuration of a program that only hosts these providers: it has no secrets.
// It is to be completed by [Config.CompleteProviders]. Where there is a lock file, it is beside
// the file of that name.
func Host(file string, plugins Plugins) Config {
	c := defaults()
	c.file, c.Plugins = file, plugins
	return c
}

// CompleteProviders is the part of [Config.Complete] that is about providers.
func (c *Config) CompleteProviders() error {
	var p problems
	c.checkProviders(&p)
	return p.err()
}
