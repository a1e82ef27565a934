// Package examples holds the example networks, which `polyplane example` prints.
package examples

import "embed"

// Files are the examples, NAME.yaml.
//
//go:embed *.yaml
var Files embed.FS
