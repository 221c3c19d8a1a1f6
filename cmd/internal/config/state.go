package config

import (
	"path/filepath"
	"strings"
)

func (c *Config) checkState(p *problems) {
	s := c.State
	switch {
	case s.Dir == "" && s.KeyFile == "" && len(s.KeyCommand) == 0:
	case s.Dir == "":
		c.say(p, "state.dir", "", "write the folder that the key is for, or remove the key")
	case s.KeyFile == "" && len(s.KeyCommand) == 0:
		c.say(p, "state.key_file", "", "write a file with a key, or a key_command that prints one: nothing is kept unencrypted")
	case s.KeyFile != "" && len(s.KeyCommand) > 0:
		c.say(p, "state.key_file", s.KeyFile, "there is a key_command, too; keep one of the two")
	case s.KeyFile != "" && isBelow(s.Dir, s.KeyFile):
		c.say(p, "state.key_file", s.KeyFile, "it is in state.dir: a copy of that folder must not contain the key")
	case s.KeyFile == "" && !filepath.IsAbs(s.KeyCommand[0]):
		c.say(p, "state.key_command", s.KeyCommand[0], "begin with the program's absolute path")
	}
}

// isBelow reports whether a file is in a folder, or below it.
func isBelow(folder, file string) bool {
	inside, err := filepath.Rel(folder, file)
	return err == nil && inside != ".." && !strings.HasPrefix(inside, ".."+string(filepath.Separator))
}
