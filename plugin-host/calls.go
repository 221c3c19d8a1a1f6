package pluginhost

import (
	"github.com/countersign-dev/countersign/plugin-host/internal/supervise"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Client calls a provider under one entry, through all restarts. It has the abilities of a
// [Provider], is comparable with == and safe for concurrent use. Before its entry is in force,
// calls wait; once another is, they fail.
type Client struct{ calls }

// calls are the abilities of a provider, which the supervisor has. Calls wait until the provider
// is ready, up to the caller's deadline or [Options.CallTimeout]; those of an ability that it
// lacks return [ca.ErrUnimplemented]. A watch survives restarts of the process: changed is called
// only for a set that differs.
type calls = supervise.Client

var (
	_ ca.Client           = Client{}
	_ ca.RootSource       = Client{}
	_ ca.RootWatcher      = Client{}
	_ ca.TokenExchanger   = Client{}
	_ ca.NameCertifier    = Client{}
	_ ca.RenewalAdvisor   = Client{}
	_ ca.RevocationSource = Client{}
	_ ca.JWTSigner        = Client{}
)
