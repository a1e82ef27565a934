package linux

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Listener says who listens on a TCP port, or has a socket bound to a UDP port, in the network namespace that fd stands
// for: "sshd (process 12)", or "a process that cannot be told" if that is hidden. It is empty if nobody does.
func Listener(fd int, network string, port uint16) string {
	inodes := map[string]bool{}
	Inside(fd, func() error { //nolint:errcheck // then nobody is found
		for _, table := range []string{network, network + "6"} {
			for _, inode := range bound(filepath.Join("/proc/thread-self/net", table), network == "tcp", port) {
				inodes["socket:["+inode+"]"] = true
			}
		}
		return nil
	})
	if len(inodes) == 0 {
		return ""
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is right
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && inodes[to] {
			process := filepath.Dir(filepath.Dir(f))
			name, _ := os.ReadFile(filepath.Join(process, "comm"))
			return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), filepath.Base(process))
		}
	}
	return "a process that cannot be told"
}

// bound are the inodes of the sockets in a table that are bound to a port; for TCP, of those that listen.
func bound(table string, listening bool, port uint16) []string {
	f, err := os.Open(table)
	if err != nil {
		return nil
	}
	defer f.Close()
	var inodes []string
	for s := bufio.NewScanner(f); s.Scan(); {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …
		fields := strings.Fields(s.Text())
		if len(fields) < 10 || listening && fields[3] != "0A" {
			continue
		}
		_, at, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(at, 16, 16); err == nil && uint16(n) == port {
			inodes = append(inodes, fields[9])
		}
	}
	return inodes
}
