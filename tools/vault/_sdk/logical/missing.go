// Of HashiCorp Vault, under the Mozilla Public License 2.0.

package logical

import (
	"context"
	"io"
)

// This is what the server of Vault 1.14.8 needs of the sdk, and what no released
// version of that has together with the rest: see scripts/get-vault.

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
