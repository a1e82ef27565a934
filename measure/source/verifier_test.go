package source

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

// Every program passes the kernel's verifier.
func TestVerifier(t *testing.T) {
	var o programObjects
	err := loadProgramObjects(&o, &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		t.Fatalf("%v", ve)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(o.Source.VerifierLog)
	o.Close()
}
