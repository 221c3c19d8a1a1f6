// Package countersign carries its own source as far as a provider compiles it, so that
// `countersign provider new` makes a module that builds without a published version of the sdk.
//
// Embedders import [sdk/agent], authors of providers [sdk/provider], hosts [plugin-host],
// registration authorities [ra], and servers of many clients [discovery].
//
// [sdk/agent]: https://pkg.go.dev/github.com/countersign-dev/countersign/sdk/agent
// [sdk/provider]: https://pkg.go.dev/github.com/countersign-dev/countersign/sdk/provider
// [plugin-host]: https://pkg.go.dev/github.com/countersign-dev/countersign/plugin-host
// [ra]: https://pkg.go.dev/github.com/countersign-dev/countersign/ra
// [discovery]: https://pkg.go.dev/github.com/countersign-dev/countersign/discovery
package countersign

import (
	"embed"
	"io/fs"
)

// A pattern cannot leave out the tests: they are 0.3 of 0.9 MB.
//
//go:embed LICENSE go.mod go.sum
//go:embed internal/call/*.go internal/clock/*.go internal/endpoint/*.go internal/host/command/*.go
//go:embed internal/host/address/*.go internal/host/errno/*.go internal/host/filewatch/*.go internal/host/reference/*.go
//go:embed internal/host/protect/*.go internal/host/safefile/*.go internal/host/selfsigned/*.go internal/jws/*.go internal/memory/*.go
//go:embed internal/program/buildinfo/*.go internal/suggest/*.go internal/text/*.go internal/transport/*.go
//go:embed internal/test/logtest/*.go internal/test/polling/*.go internal/test/proctest/*.go internal/test/programs/*.go
//go:embed proto/provider/v1/*.go proto/provider/v2/*.go
//go:embed sdk/ca/*.go sdk/catest/*.go sdk/catest/conformance/*.go sdk/pki/*.go
//go:embed sdk/provider/*.go sdk/provider/chain/*.go sdk/provider/filewatch/*.go sdk/provider/rest/*.go
//go:embed sdk/provider/setting/*.go sdk/provider/testkit/*.go sdk/provider/wire/*.go sdk/trace/*.go
var source embed.FS

// ProviderSource returns the files of sdk/provider, of the test kits for providers and of all
// packages of this module that they import, by their path in the module, with its go.mod, go.sum
// and LICENSE. Test files are among them.
func ProviderSource() fs.FS { return source }
