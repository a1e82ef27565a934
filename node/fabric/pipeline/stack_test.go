package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
)

// The verifier of Linux 6.1 refuses a program whose functions that call one another have more stack than this between
// them, the stack of each rounded up. Later ones round it less, so that they load what Debian 12 refuses.
const (
	stackBytes = 512
	stackUnit  = 32
)

// TestStackFitsOlderKernels adds up the stacks as Linux 6.1 does.
func TestStackFitsOlderKernels(t *testing.T) {
	spec, err := loadTc()
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range spec.Programs {
		own, calls := stacks(program.Instructions)
		if bytes, way := deepest(name, own, calls); bytes > stackBytes {
			t.Errorf("program %s takes %d bytes of stack (%s): Linux 6.1 refuses more than %d", name,
				bytes, way, stackBytes)
		} else if bytes == 0 {
			t.Errorf("program %s: no stack was found at all", name)
		} else {
			t.Logf("%s: %d (%s)", name, bytes, way)
		}
	}
}

// stacks tells how many bytes of its own stack each function uses, and whom it calls.
func stacks(program asm.Instructions) (own map[string]int, calls map[string][]string) {
	own, calls = map[string]int{}, map[string][]string{}
	var function string
	var before asm.Instruction
	for _, in := range program {
		if s := in.Symbol(); s != "" {
			function = s
			own[function] = 0
		}
		at := 0
		switch class := in.OpCode.Class(); {
		case in.IsFunctionCall():
			calls[function] = append(calls[function], in.Reference())
		case class.IsLoad() && in.Src == asm.RFP, class.IsStore() && in.Dst == asm.RFP:
			at = int(in.Offset)
		case class.IsALU() && in.OpCode.ALUOp() == asm.Add && in.OpCode.Source() == asm.ImmSource &&
			before.OpCode.Class().IsALU() && before.OpCode.ALUOp() == asm.Mov && before.Src == asm.RFP &&
			before.Dst == in.Dst:
			at = int(in.Constant)
		}
		own[function] = max(own[function], -at)
		before = in
	}
	return own, calls
}

// deepest is the most that a function and those it calls have at a time, and by whom.
func deepest(function string, own map[string]int, calls map[string][]string) (bytes int, way string) {
	for _, to := range calls[function] {
		if b, w := deepest(to, own, calls); b > bytes {
			bytes, way = b, w
		}
	}
	mine := max(1, (own[function]+stackUnit-1)/stackUnit) * stackUnit
	return bytes + mine, strings.TrimSuffix(fmt.Sprintf("%s %d, %s", function, own[function], way), ", ")
}
