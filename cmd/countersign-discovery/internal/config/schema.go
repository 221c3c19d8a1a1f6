package config

import _ "embed" // the schema

// Schema is the JSON Schema of the file. A test generates it from the types.
//
//go:embed schema.json
var Schema string
