// Package measure holds the project's instrument, in packages below this one; it has no code of its own.
//
//	frame      what measured frames look like: headers, sizes, flows, and the tag with sequence number, time and checksum
//	source     sends them: live XDP frames from an eBPF program, or a packet socket where the kernel lacks those
//	sink       receives and counts them, in an eBPF program on the receiving device
//	hist       histograms of delays; delay variation after RFC 3393, jitter after RFC 3550
//	stats      intervals, bootstrap, paired ratios, noise floor, stop rule, steadiness of the machine
//	search     throughput: MLRsearch-style and RFC 2544
//	trial      runs trials with stated placement; curves, searches, bursts, comparisons in random blocks
//	selftest   what source and sink can do on this machine
//	tools      TCP by iperf3, round trips, connections per second
//	machine    environment, and where CPU time went
//	result     JSON, CSV, tables
//	impair     a device with known faults, to check the instrument against
//	netdev     devices, namespaces, threaded reception
//
// How far to trust it:
//
//   - Counts are exact, or the result says in words why not (sink.Report.Doubts, trial.Result.Marks): a full ring at
//     the sink,
//     a frame later than the window of sequence numbers, a source that fell short, stolen CPU time.
//   - The payload's checksum is the 16-bit ones' complement sum: it shows every flipped bit and all but one in 65,536
//     of
//     other changes. A frame whose tag is damaged such that its run cannot be told counts as corrupted without a
//     stream.
//   - Delay runs from the moment the source writes the frame until the sink's program sees it. Frames leave in batches
//     (8 when
//     paced, 256 at full speed), so a frame waits for its batch; trial.Load.Exact sends one by one.
//   - The source spins: it uses its CPU wholly for as long as a trial lasts, at nice −20.
//   - By default a veth receives on the CPU that sends to it. Then the source waits for what is measured, and nothing
//     is ever
//     lost. Searches refuse such a placement; trial.Placement.Polled makes another.
//   - A frame that XDP sends into a full receive ring vanishes there. The source counts these (source.Report.Refused):
//     they
//     were lost by the device under test, whose ring it is.
package measure
