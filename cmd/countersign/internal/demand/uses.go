package demand

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// usesRecord is the name of the record of when names were last used.
const usesRecord = "uses of names on demand"

// Uses keeps when names were last used in a record of the state. It implements the Uses of sdk/ondemand.
type Uses struct{ Storage secret.Storage }

// LoadUses returns what was saved last.
func (u Uses) LoadUses(ctx context.Context) ([]byte, error) {
	record, err := u.Storage.Load(ctx, usesRecord)
	return record.Content, err
}

// SaveUses replaces what was saved.
func (u Uses) SaveUses(ctx context.Context, text []byte) error {
	return u.Storage.Store(ctx, usesRecord, secret.Record{Authority: usesRecord, Content: text})
}
