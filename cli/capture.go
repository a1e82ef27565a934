package cli

import (
	"bufio"
	"context"
	"encoding/binary"
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
		Long: `Show the packets that pass an interface, a line each: when, whether into the element or out of it,
and what. With -w, write them as pcapng instead, which Wireshark, tcpdump and others read.`,
		Example: "  polyplane capture lab/r1:h1\n  polyplane capture lab/r1:h1 -c 100 -w lab.pcapng\n" +
			"  polyplane capture lab/r1:h1 -w - | wireshark -k -i -\n  polyplane capture lab/r1:h1 -w - | tcpdump -r " +
			"- icmp",
		Args: args(1, 1, "NET/ELEMENT:IF"),
		RunE: func(cmd *cobra.Command, given []string) error {
			port, err := c.refs(cmd.Context()).port(given[0])
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
	cmd.Flags().StringVarP(&file, "write", "w", "", "write pcapng to this `FILE` (- is standard output)")
	cmd.Flags().IntVarP(&packets, "count", "c", 0, "stop after this many packets; 0: at ^C")
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
	if why := stopped(ctx, cl, port.ID); why != nil {
		fmt.Fprintf(c.Err, "waiting for packets: %s\n", why)
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
	var seen packetCount
	if file != "" {
		err = c.savePackets(stream, out, packets, port, &seen)
	} else {
		err = c.showPackets(stream, out, packets, port, &seen)
	}
	// ^C is how a capture ends.
	if ctx.Err() != nil {
		err = nil
	}
	if saved != nil {
		err = errors.Join(err, saved.Close())
	}
	if file != "" || ctx.Err() != nil {
		fmt.Fprintln(c.Err, seen)
	}
	return err
}

// packetCount is how many packets a capture has seen, and how many it has missed because it was too slow.
type packetCount struct {
	seen   int
	missed uint64
}

func (n packetCount) String() string {
	s := plural(n.seen, "packet") + " captured"
	if n.missed > 0 {
		s += fmt.Sprintf(", %d missed", n.missed)
	}
	return s
}

// showPackets prints a line for each packet of a pcapng stream: when, whether it went into the element or came out of
// it, and what it is.
func (c *CLI) showPackets(stream io.Reader, w io.Writer, most int, port model.PortID, n *packetCount) error {
	in, err := pcapgo.NewNgReader(stream, pcapgo.NgReaderOptions{})
	if err != nil {
		return fmt.Errorf("%s: the capture broke off: %w", port, err)
	}
	fmt.Fprintf(c.Err, "capturing on %s; ^C ends it\n", port)
	for most == 0 || n.seen < most {
		data, info, options, err := in.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: the capture broke off: %w", port, err)
		}
		n.seen++
		direction := "?"
		if options.Flags != nil {
			switch options.Flags.Direction {
			case pcapgo.NgEpbFlagDirectionInbound:
				direction = "in "
			case pcapgo.NgEpbFlagDirectionOutbound:
				direction = "out"
			}
		}
		if options.DropCount != nil {
			n.missed += *options.DropCount
		}
		if _, err := fmt.Fprintf(w, "%s %s %s\n", info.Timestamp.In(c.Now().Location()).Format("15:04:05.000000"),
			direction, summarize(data, in.LinkType(), info.Length)); err != nil {
			return err
		}
	}
	return nil
}

// Block types of pcapng (draft-ietf-opsawg-pcapng), the mark that shows a section's byte order, and the limits of a
// block's length.
const (
	blockSection   = 0x0a0d0d0a
	blockPacket    = 6
	byteOrderMark  = 0x1a2b3c4d
	minBlockLength = 12
	maxBlockLength = 1 << 20
)

// savePackets copies a pcapng stream block by block. So the file is whole at any time, and keeps everything that the
// stream tells of a packet.
func (c *CLI) savePackets(stream io.Reader, w io.Writer, most int, port model.PortID, n *packetCount) error {
	in := bufio.NewReader(stream)
	var order binary.ByteOrder = binary.LittleEndian
	block := make([]byte, minBlockLength, 64<<10)
	broken := func(err error) error { return fmt.Errorf("%s: the capture broke off: %w", port, err) }
	for first := true; most == 0 || n.seen < most; first = false {
		block = block[:minBlockLength]
		if _, err := io.ReadFull(in, block); errors.Is(err, io.EOF) && !first {
			return nil
		} else if err != nil {
			return broken(err)
		}
		if binary.LittleEndian.Uint32(block) == blockSection { // reads the same in both byte orders
			if order = binary.LittleEndian; order.Uint32(block[8:]) != byteOrderMark {
				order = binary.BigEndian
			}
		} else if first {
			return broken(errors.New("it is no pcapng"))
		}
		length := int(order.Uint32(block[4:]))
		if length < minBlockLength || length > maxBlockLength {
			return broken(fmt.Errorf("a block of %d bytes", length))
		}
		block = append(block, make([]byte, length-minBlockLength)...)
		if _, err := io.ReadFull(in, block[minBlockLength:]); err != nil {
			return broken(err)
		}
		if order.Uint32(block) == blockPacket {
			n.seen++
		}
		if _, err := w.Write(block); err != nil {
			return err
		}
		if first {
			fmt.Fprintf(c.Err, "capturing on %s; ^C ends it\n", port)
		}
	}
	return nil
}
