package chaos

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// machineDrops is what the machine as a whole has dropped so far. Others who run on it can make a test's own networks
// lose packets. With these numbers the report of a loss says so.
type machineDrops struct {
	backlog    uint64 // packets for which a processor's queue had no room: the second number of a line of /proc/net/softnet_stat
	unresolved uint64 // packets that waited for a neighbour in a queue that was full
	full       uint64 // neighbours for which the machine's table had no room
}

func readMachineDrops() (d machineDrops) {
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

func (d machineDrops) since(before machineDrops) string {
	return fmt.Sprintf("meanwhile the machine's processors dropped %d packets for lack of room in their queues, %d that waited for a "+
		"neighbour, and its tables of neighbours were full %d times", d.backlog-before.backlog, d.unresolved-before.unresolved, d.full-before.full)
}

// gaps tells which of the numbers below end never came.
func (f *flow) gaps(end uint64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for k := uint64(0); k < end; {
		first := k
		for ; k < end && !f.has(k); k++ {
		}
		if k > first {
			list = append(list, fmt.Sprintf("%d packets from %d on", k-first, first))
		}
		k++
	}
	return strings.Join(list[:min(len(list), 10)], ", ")
}

// has tells whether a number came; f.mu is held.
func (f *flow) has(k uint64) bool { return uint64(len(f.seen)) > k/64 && f.seen[k/64]&(1<<(k%64)) != 0 }
