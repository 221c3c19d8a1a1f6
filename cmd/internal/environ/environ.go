// Package environ holds the environment of a program as a value, so that a test can run the
// program's code with an environment of its own.
package environ

import "strings"

// Vars are variables, NAME=VALUE each, as [os.Environ] returns them. The first of a repeated
// name counts.
type Vars []string

// Lookup returns a variable, as [os.LookupEnv] does.
func (v Vars) Lookup(name string) (value string, ok bool) {
	for _, one := range v {
		if value, ok = strings.CutPrefix(one, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Get returns a variable, as [os.Getenv] does: empty if it is not set.
func (v Vars) Get(name string) string {
	value, _ := v.Lookup(name)
	return value
}
