package chaos

import (
	"os"
	"testing"

	"github.com/polyplane/polyplane/system/sandbox"
)

func TestMain(m *testing.M) {
	if os.Getenv(clockVariable) != "" {
		os.Exit(printClock())
	}
	os.Exit(sandbox.Main("../../cmd/polyplane", m.Run))
}
