package spec

import (
	"fmt"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

func BenchmarkParseLine(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			data := Line(n)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse("line.yaml", data, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFormatLine(b *testing.B) {
	nets, err := Parse("line.yaml", Line(1000), Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Format(nets[0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidateLine(b *testing.B) {
	nets, err := Parse("line.yaml", Line(1000), Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, problems := resolve.Read(nets[0]); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}

func BenchmarkResolveLine(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			nets, err := Parse("line.yaml", Line(n), Options{})
			if err != nil {
				b.Fatal(err)
			}
			document, _ := resolve.Read(nets[0])
			_, as, err := document.Resolve(model.Assigned{}, resolve.NewNumbers())
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, _, err := document.Resolve(as, resolve.NewNumbers(as)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
