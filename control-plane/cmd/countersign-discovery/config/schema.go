package config

import _ "embed" // the schema

// Schema is the JSON Schema of the file, which a test makes of the types.
//
//go:embed schema.json
var Schema string
