package software

import _ "embed"

//go:embed inside/supervise_arm64
var supervise []byte
