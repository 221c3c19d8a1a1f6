package token

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Env is a source that looks up a variable. A process's own variables do not change,
// so that its token is good as long as it lives: a file is better.
type Env struct {
	Name string
	// Lookup is [os.LookupEnv], in a program. Required.
	Lookup func(name string) (value string, ok bool)
}

// Token returns the variable's value. One that is not set, empty or no token is an
// error of the reason [ca.Unavailable].
func (e Env) Token(context.Context) (ca.Bearer, error) {
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
