// Package holder marks for whom a call is made, so that each holder can have its own budget: call
// [With] in a face, which has the caller, and [Of] where the budget is kept. It keeps no state.
package holder

import "context"

type key struct{}

// With returns a context for calls on behalf of a holder, such as "uid:1000".
func With(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, key{}, name)
}

// Of returns the holder, empty if there is none.
func Of(ctx context.Context) string {
	name, _ := ctx.Value(key{}).(string)
	return name
}
