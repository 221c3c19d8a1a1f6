package logical

import (
	"context"
	"io"
)

// What Vault 1.14.8 has of the sdk and no released version of that has together with
// the rest: the same as in its repository.

type CtxKeyRequestRole struct{}

func (CtxKeyRequestRole) String() string { return "request-role" }

type ctxKeyOriginalBody struct{}

func ContextOriginalBodyValue(ctx context.Context) (io.ReadCloser, bool) {
	value, ok := ctx.Value(ctxKeyOriginalBody{}).(io.ReadCloser)
	return value, ok
}

func CreateContextOriginalBody(parent context.Context, body io.ReadCloser) context.Context {
	return context.WithValue(parent, ctxKeyOriginalBody{}, body)
}
