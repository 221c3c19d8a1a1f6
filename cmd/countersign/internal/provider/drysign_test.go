package provider

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

func TestDrySignTakesNoRuleForASecret(t *testing.T) {
	var c config.Config
	c.Providers = make([]config.Provider, 1)
	c.Providers[0].Name = "file"
	c.Secrets = []config.Secret{{Name: "**", Match: config.Patterns{"**"}, Kind: config.KeyPair, KeyType: "ecdsa-p256", Providers: []string{"file"}}}
	if _, _, err := firstIdentity(nil, c, &pluginhost.Entry{Name: "file"}, nil); err == nil || !strings.Contains(err.Error(), "has no secret that") {
		t.Errorf("%v", err)
	}
}
