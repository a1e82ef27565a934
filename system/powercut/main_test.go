package powercut

import (
	"os"
	"testing"

	"github.com/polyplane/polyplane/system/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main("../../cmd/polyplane", m.Run)) }
