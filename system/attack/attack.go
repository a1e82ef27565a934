// Package attack has tests tell of the attacks that they make, for `make attack`: what the attacker did, and what
// others lost by it.
package attack

import (
	"strings"
	"testing"
)

// Tell tells what is done in this test, and, when the test has passed, what others lost by it: what it demands.
func Tell(t testing.TB, did, lost string) {
	t.Helper()
	t.Attr("attack", words(did))
	t.Cleanup(func() {
		if !t.Failed() {
			t.Attr("lost", words(lost))
		}
	})
}

// Measured tells what others lost, as it was measured.
func Measured(t testing.TB, did, lost string) {
	t.Helper()
	t.Logf("%s: lost: %s", did, lost)
	t.Attr("attack", words(did))
	t.Attr("lost", words(lost))
}

// words are one line, as attributes must be.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }
