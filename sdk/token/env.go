package token

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Env is a source that reads an environment variable. A process's variables do not change,
// so its token never rotates: prefer [File].
type Env struct {
	Name string
	// Lookup is usually [os.LookupEnv]. Required.
	Lookup func(name string) (value string, ok bool)
}

// Token returns the variable's value. If it is unset, empty or not a token, the error's
// reason is [ca.Unavailable].
func (e Env) Token(context.Context) (ca.Bearer, error) {
	if e.Lookup == nil {
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s: Lookup is required", e)
	}
	value, ok := e.Lookup(e.Name)
	if !ok {
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s is not set", e)
	}
	if len(value) > maxToken {
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "%s has more than %d bytes", e, maxToken)
	}
	return parse([]byte(value), e.String())
}

func (e Env) String() string { return "token variable: " + e.Name }
