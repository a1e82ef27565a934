package software

import _ "embed"

//go:embed inside/supervise_amd64
var supervise []byte
