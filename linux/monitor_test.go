package linux

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// monitored makes a namespace of its own with a monitor of its links and a connection that changes them.
func monitored(t *testing.T, buffer int) (*Monitor, *Rtnetlink) {
	t.Helper()
	var m *Monitor
	var c *Rtnetlink
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	err = Inside(int(home.Fd()), func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if c, err = DialRtnetlink(); err != nil {
			return err
		}
		m, err = DialMonitor(buffer, unix.RTNLGRP_LINK)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Close()
		c.Close()
	})
	return m, c
}

func upDown(t *testing.T, c *Rtnetlink, times int) {
	t.Helper()
	var b Batch
	for i := range times {
		b.Request(unix.RTM_NEWLINK, 0)
		b.Link(1, uint32(unix.IFF_UP*(i&1)), unix.IFF_UP)
	}
	if errs := c.Do(&b); errs != nil {
		t.Fatal(errs)
	}
}

func TestMonitorTellsNotificationsAndDumpsInOrder(t *testing.T) {
	m, c := monitored(t, 1<<20)
	upDown(t, c, 2)
	var b Batch
	b.Request(unix.RTM_GETLINK, 0)
	b.Link(0, 0, 0)
	seq, err := m.Dump(&b)
	if err != nil {
		t.Fatal(err)
	}
	upDown(t, c, 2)
	if err := m.Wait(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2*MonitorDatagram)
	r, ends, err := m.Read(buf, nil)
	if err != nil || r.Overrun {
		t.Fatal(r, err)
	}
	kinds, start := "", 0
	for _, end := range ends {
		switch data := buf[start:end]; {
		case !m.Answers(data, seq):
			kinds += "n"
		case binary.NativeEndian.Uint16(data[4:]) == unix.NLMSG_DONE:
			kinds += "."
		default:
			kinds += "d"
		}
		start = end
	}
	// lo is down at first; the kernel may put the end of a dump behind what comes meanwhile.
	if kinds != "nd.nn" && kinds != "ndn.n" && kinds != "ndnn." {
		t.Errorf("notifications and dumps came as %q", kinds)
	}
	m.Interrupt()
	if err := m.Wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("interrupted, Wait answers %v", err)
	}
	m.Resume()
	upDown(t, c, 2)
	if err := m.Wait(); err != nil {
		t.Error(err)
	}
}

func TestMonitorTellsOfAnOverrunAndItsEnd(t *testing.T) {
	m, c := monitored(t, 4<<10)
	upDown(t, c, 200)
	buf := make([]byte, 2*MonitorDatagram)
	overrun, recovered := false, false
	for !recovered {
		if err := m.Wait(); err != nil {
			t.Fatal(err)
		}
		r, _, err := m.Read(buf, nil)
		if err != nil {
			t.Fatal(err)
		}
		overrun = overrun || r.Overrun
		if recovered = r.Recovered; recovered && !overrun {
			t.Fatal("recovered from no overrun")
		}
	}
	upDown(t, c, 2)
	if err := m.Wait(); err != nil {
		t.Fatal(err)
	}
	if r, _, err := m.Read(buf, nil); err != nil || r.Overrun || r.Recovered || r.Bytes == 0 {
		t.Errorf("after the overrun: %+v, %v", r, err)
	}
}

func TestMonitorLeavesOutWhatIsNotTheKernels(t *testing.T) {
	m, c := monitored(t, 1<<20)
	fake := make([]byte, 32)
	binary.NativeEndian.PutUint32(fake, 32)
	binary.NativeEndian.PutUint16(fake[4:], unix.RTM_DELLINK)
	if err := unix.Sendto(c.fd, fake, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: m.port}); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(); err != nil {
		t.Fatal(err)
	}
	r, ends, err := m.Read(make([]byte, 2*MonitorDatagram), nil)
	if err != nil || r.Bytes != 0 || len(ends) != 0 {
		t.Errorf("a message of another process is taken in: %+v, %v", r, err)
	}
}
