package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

func (c *CLI) captureCommand() *cobra.Command {
	var file string
	var packets int
	cmd := &cobra.Command{
		Use:     "capture NET/ELEMENT:IF",
		Aliases: []string{"tcpdump"},
		Short:   "Show or save the packets that pass an interface",
		GroupID: groupElements,
		Long: `Show the packets that pass an interface, in both directions, a line each; with -w, write them as a
pcap file instead, which Wireshark, tcpdump and others read.`,
		Example: "  polyplane capture lab/r1:h1\n  polyplane capture lab/r1:h1 -c 100 -w lab.pcap\n" +
			"  polyplane capture lab/r1:h1 -w - | wireshark -k -i -\n  polyplane capture lab/r1:h1 -w - | tcpdump -r - icmp",
		Args: args(1, 1, "NET/ELEMENT:IF"),
		RunE: func(cmd *cobra.Command, given []string) error {
			port, err := portRef(given[0])
			if err != nil {
				return err
			}
			if packets < 0 {
				return usageError(cmd, "-c %d: a number of packets is expected, or 0 for no end", packets)
			}
			if _, ok := terminalFD(c.Out); ok && file == "-" {
				return usageError(cmd, "-w - writes binary data, and standard output is a terminal: pipe it, such as "+
					"`polyplane capture %s -w - | wireshark -k -i -`", port)
			}
			return c.capture(cmd.Context(), port, file, packets)
		},
		ValidArgsFunction: c.completeFirst(c.completePorts),
	}
	cmd.Flags().StringVarP(&file, "write", "w", "", "write pcap to this `FILE` (- is standard output)")
	cmd.Flags().IntVarP(&packets, "count", "c", 0, "stop after so many packets; 0: at ^C")
	return cmd
}

func (c *CLI) capture(ctx context.Context, port model.PortID, file string, packets int) error {
	cl, err := c.connect()
	if err != nil {
		return err
	}
	of := ref{network: port.Network, element: port.Element, iface: port.Interface}
	if err := lookUp(ctx, cl, of); err != nil {
		return err
	}
	stream, err := cl.Capture(ctx, port)
	if err != nil {
		return wrap(ctx, cl, err, of)
	}
	defer stream.Close()
	out := c.Out
	var saved *os.File
	if file != "" && file != "-" {
		if saved, err = os.Create(file); err != nil {
			return err
		}
		defer saved.Close()
		out = saved
	}
	seen, err := c.copyPackets(stream, out, file != "", packets, port)
	// ^C is how a capture ends.
	if ctx.Err() != nil {
		err = nil
	}
	if saved != nil {
		err = errors.Join(err, saved.Close())
	}
	if file != "" || ctx.Err() != nil {
		fmt.Fprintf(c.Err, "%d packets captured\n", seen)
	}
	return err
}

// copyPackets reads a pcap stream and writes it on, as pcap or as lines, packet by packet: what is written is whole at
// any time.
func (c *CLI) copyPackets(stream io.Reader, w io.Writer, binary bool, most int, port model.PortID) (int, error) {
	in, err := pcapgo.NewReader(stream)
	if err != nil {
		return 0, fmt.Errorf("%s: the capture broke off: %w", port, err)
	}
	fmt.Fprintf(c.Err, "capturing on %s; ^C ends it\n", port)
	buffered := bufio.NewWriter(w)
	out := pcapgo.NewWriterNanos(buffered)
	if binary {
		if err := out.WriteFileHeader(in.Snaplen(), in.LinkType()); err != nil {
			return 0, err
		}
		if err := buffered.Flush(); err != nil {
			return 0, err
		}
	}
	for seen := 0; ; seen++ {
		if most > 0 && seen == most {
			return seen, nil
		}
		data, info, err := in.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return seen, nil
		}
		if err != nil {
			return seen, fmt.Errorf("%s: the capture broke off: %w", port, err)
		}
		if binary {
			err = out.WritePacket(info, data)
		} else {
			_, err = fmt.Fprintf(buffered, "%s %s\n", info.Timestamp.In(c.Now().Location()).Format("15:04:05.000000"),
				summarize(data, in.LinkType(), info.Length))
		}
		if err == nil {
			err = buffered.Flush() // whoever watches wants to see the packet now
		}
		if err != nil {
			return seen, err
		}
	}
}
