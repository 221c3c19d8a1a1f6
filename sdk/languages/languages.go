// Package languages (for Countersign's own programs) embeds the libraries for providers in other
// languages: what sdk/provider is to Go, python, node and rust are to theirs. Each folder is a
// package in its language's form, with a complete provider in example. `countersign provider new
// --lang` writes both into a new project, which refers to the folder and never to a package of that
// name in a registry.
package languages

import (
	"embed"
	"io/fs"
)

// Only what is named here: a clone may have built packages beside them.
//
//go:embed provider.binpb
//go:embed python/LICENSE python/README.md python/pyproject.toml python/src/countersign_provider/*.py python/src/countersign_provider/py.typed python/src/countersign_provider/provider.binpb python/example/*
//go:embed rust/LICENSE rust/README.md rust/Cargo.toml rust/src/*.rs rust/example/Cargo.* rust/example/README.md rust/example/gitignore rust/example/kit.yaml rust/example/src/*.rs rust/example/tests/*.rs
//go:embed node/LICENSE node/README.md node/package.json node/lib/* node/example/*
var files embed.FS

// Sources returns the folders python, node and rust, and provider.binpb, the protocol as a
// google.protobuf.FileDescriptorSet.
func Sources() fs.FS { return files }
