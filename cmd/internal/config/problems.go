package config

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/internal/text"
)

// problems collects all that is wrong, so that one start reports all of it.
type problems struct{ errs []error }

func (p *problems) add(err error) { p.errs = append(p.errs, err) }

// say adds the sentence: a setting, its value, and what is allowed.
func (p *problems) say(setting, value, source, allowed string) {
	p.add(fmt.Errorf("%s is %s%s: %s", text.Clean(setting), value, source, allowed))
}

// check adds an error, if it is one.
func (p *problems) check(err error) {
	if err != nil {
		p.add(err)
	}
}

// Warnings are sentences about settings that have less effect than meant, of a complete
// configuration.
func (c *Config) Warnings() []string { return c.warnings }

func (c *Config) warn(format string, args ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
}

func (p *problems) err() error { return errors.Join(p.errs...) }
