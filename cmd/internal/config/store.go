package config

import "fmt"

// Store is where the agents of several machines share the certificates of rules with match, so that
// one of them orders each. Their keys are there: encrypted in a folder, plain in Kubernetes.
type Store struct {
	// Folder is a folder that all machines mount, such as one on NFS, in place of which state.dir keeps
	// the certificates of one machine. It must exist, be closed to other users (0700) and belong to the user
	// that runs the agents. Default: certificates are not shared.
	Folder string `json:"folder"`
	// KeyFile holds the key, the same on all machines, as state.key_file has one. Required with folder.
	KeyFile string `json:"key_file"`
	// Kubernetes replaces folder and key_file.
	Kubernetes StoreKubernetes `json:"kubernetes"`
}

// IsSet reports whether certificates are shared.
func (s Store) IsSet() bool { return s.Folder != "" || s.Kubernetes.Namespace != "" }

// checkStore checks the store and what cannot be used beside it.
func (c *Config) checkStore(p *problems) {
	s := c.Store
	c.checkStoreKubernetes(p)
	switch {
	case s.Folder == "" && s.KeyFile == "" || s.Kubernetes.Namespace != "":
		return
	case s.Folder == "":
		c.say(p, "store.folder", "", "write the folder that the key is for, or remove the key")
	case s.KeyFile == "":
		c.say(p, "store.key_file", "", "write a file with a key that is the same on all machines: nothing is kept unencrypted")
	case isBelow(s.Folder, s.KeyFile):
		c.say(p, "store.key_file", s.KeyFile, "it is in store.folder: a copy of that folder must not contain the key")
	case c.State.Dir != "" && (isBelow(s.Folder, c.State.Dir) || isBelow(c.State.Dir, s.Folder)):
		c.say(p, "store.folder", s.Folder, "it and state.dir are below each other, and state.dir is for this agent alone; write another folder")
	}
}

// checkStoreUse checks the rules beside the store: the CA may send a challenge to any of the machines.
func (c *Config) checkStoreUse(p *problems, rules []Secret) {
	if !c.Store.IsSet() {
		return
	}
	if len(rules) == 0 {
		c.warn("store is set and no secret has match: nothing is shared")
	}
	for _, rule := range rules {
		for _, entry := range c.Providers {
			if len(rule.Providers) == 1 && entry.Name == rule.Providers[0] && entry.binary() == "acme" && entry.Settings["challenge"] == "tls-alpn-01" {
				p.add(fmt.Errorf("providers.%s.settings.challenge is tls-alpn-01, and the certificates of secrets.%s are shared: the CA may connect to a machine that has not ordered; write dns-01, or http-01 with webroot in a shared folder", entry.Name, rule.Name))
			}
		}
	}
}
