package sockets

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// idle tries whether the kernel takes a program that does nothing at the same place.
func idle(spec ebpf.ProgramSpec, attach func(*ebpf.Program) (link.Link, error)) error {
	spec.License, spec.Instructions = "GPL", asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	p, err := ebpf.NewProgram(&spec)
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := attach(p)
	if err != nil {
		return err
	}
	return l.Close()
}

// securityModules are those that the kernel was started with.
func securityModules(t *testing.T) []string {
	t.Helper()
	fs, err := unix.Fsopen("securityfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Fatal(err)
	}
	mounted, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(mounted)
	fd, err := unix.Openat(mounted, "lsm", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "lsm")
	defer f.Close()
	list, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(list)), ",")
}

// skipLacking skips the test if it is proved that the kernel runs no program at a hook, in neither way.
func skipLacking(t *testing.T, why error, hook string) {
	t.Helper()
	err := idle(ebpf.ProgramSpec{Type: ebpf.LSM, AttachType: ebpf.AttachLSMMac, AttachTo: hook},
		func(p *ebpf.Program) (link.Link, error) { return link.AttachLSM(link.LSMOptions{Program: p}) })
	if err == nil && slices.Contains(securityModules(t), "bpf") {
		t.Fatalf("the kernel takes programs as a security module, but not this one: %v", why)
	}
	skipLackingBefore(t, errors.Join(why, err), hook)
}

// skipLackingBefore is about programs before the function that asks the security modules.
func skipLackingBefore(t *testing.T, why error, hook string) {
	t.Helper()
	err := idle(ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachModifyReturn, AttachTo: "security_" + hook},
		func(p *ebpf.Program) (link.Link, error) { return link.AttachTracing(link.TracingOptions{Program: p}) })
	if err == nil {
		t.Fatalf("the kernel takes programs before security_%s, but not this one: %v", hook, why)
	}
	t.Skipf("this kernel runs no programs there: %v: %v", err, why)
}
