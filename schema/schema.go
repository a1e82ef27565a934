// Package schema holds the JSON Schema of the file format, by which editors complete and check files.
package schema

import _ "embed"

// JSON is the schema; `polyplane schema` prints it.
//
//go:embed polyplane.schema.json
var JSON []byte
