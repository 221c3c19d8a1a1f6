package provider_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
)

type addressed struct {
	Pool string `json:"pool,omitempty" address:"text" pattern:"^pools/[a-z]+$" jsonschema:"pool, pools/NAME"`
}

func TestTagsMarkAddressAndPattern(t *testing.T) {
	made := provider.Define("marked", "1", func(context.Context, addressed) (*catest.CA, error) { return catest.NewCA(catest.Options{}), nil }).Provider()
	m, err := made.Metadata(t.Context())
	must(t, err)
	var schema jsonschema.Schema
	must(t, json.Unmarshal([]byte(m.SettingsSchema), &schema))
	pool := schema.Properties["pool"]
	if pool == nil || pool.Extra["x-countersign-address"] != "text" || pool.Pattern != "^pools/[a-z]+$" {
		t.Errorf("the schema is %s", m.SettingsSchema)
	}
	err = made.Configure(t.Context(), map[string]any{"pool": "pools/B"})
	if want := `the setting pool is "pools/B": it takes text that matches ^pools/[a-z]+$: pool, pools/NAME`; ca.ReasonFor(err) != ca.Invalid || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := made.Configure(t.Context(), map[string]any{"pool": "pools/b"}); err != nil {
		t.Error(err)
	}
}
