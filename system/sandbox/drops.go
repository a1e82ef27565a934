package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Drops is what the machine as a whole has dropped so far. Others who run on it can make a test's own networks
// lose packets. With these numbers the report of a loss says so.
type Drops struct {
	// packets for which a processor's queue had no room: the second number of a line of /proc/net/softnet_stat
	backlog    uint64
	unresolved uint64 // packets that waited for a neighbour in a queue that was full
	full       uint64 // neighbours for which the machine's table had no room
}

// ReadDrops reads them.
func ReadDrops() (d Drops) {
	d.backlog = column("/proc/net/softnet_stat", 1, false)
	for _, table := range []string{"arp_cache", "ndisc_cache"} {
		d.unresolved += column("/proc/net/stat/"+table, 11, true)
		d.full += column("/proc/net/stat/"+table, 12, true)
	}
	return d
}

// column adds up a column of hexadecimal numbers, one line for each processor. What cannot be read counts as nothing.
func column(file string, at int, header bool) (sum uint64) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	lines := strings.Split(string(text), "\n")
	if header {
		lines = lines[1:]
	}
	for _, line := range lines {
		if words := strings.Fields(line); len(words) > at {
			n, err := strconv.ParseUint(words[at], 16, 64)
			if err == nil {
				sum += n
			}
		}
	}
	return sum
}

// Since says what has been dropped since an earlier reading.
func (d Drops) Since(before Drops) string {
	return fmt.Sprintf("meanwhile the machine's processors dropped %d packets for lack of room in their queues, %d "+
		"that waited for a neighbour, and its tables of neighbours were full %d times", d.backlog-before.backlog,
		d.unresolved-before.unresolved, d.full-before.full)
}
