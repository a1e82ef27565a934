package main

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	w, err := parse([]byte("# words\nown \"a b\"\nown \"\"\nenv \"X=\\\"\"\nstart \"s\"\nstop \"e\"\ndir \"/srv\"\nuser \"web\"\n" +
		"restart \"no\"\ntcp \"80\"\nready \"r\"\nsignal \"3\"\nlater \"is not known\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.service(), []string{"a b", ""}) || w.env[0] != `X="` || w.tcp != 80 || w.signal != syscall.SIGQUIT ||
		w.restart != "no" || w.dir != "/srv" || w.user != "web" || w.ready != "r" || w.start[0] != "s" || w.stop[0] != "e" {
		t.Errorf("it is %+v", w)
	}
	r := *w
	r.run = "x"
	if !slices.Equal(r.service(), []string{shell, "-c", "x"}) || !r.another(w) || w.another(w) {
		t.Errorf("with run it is %q", r.service())
	}
	r = *w
	r.ready, r.restart, r.start = "other", "always", nil
	if r.another(w) {
		t.Error("the service is restarted for what it does not see")
	}
	for _, bad := range []string{"own a", "own", "tcp \"x\"", "signal \"x\""} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q is understood", bad)
		}
	}
}

// TestCommandsOfBeforeAreKnown: a command that did its work under an earlier version, which marked it as bash quotes it,
// has done it.
func TestCommandsOfBeforeAreKnown(t *testing.T) {
	for _, command := range []string{"ip route add 198.51.100.0/24 via 10.0.0.1", `echo 'it is' "$x" \`, "one\n\ttwo 'three' \\"} {
		out, err := exec.Command("bash", "-c", `printf %s "${1@Q}"`, "-", command).CombinedOutput()
		if err != nil {
			t.Fatal(err, string(out))
		}
		if got := shellMark(command); got != string(out) {
			t.Errorf("%q is marked %s, and was %s", command, got, out)
		}
	}
}
