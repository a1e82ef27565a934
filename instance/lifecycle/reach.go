package lifecycle

import (
	"cmp"
	"fmt"
	"net"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/substrate"
)

// reach takes in how other machines shall reach this one, and returns the machine as they see it.
func (s *settings) reach(o Options, m substrate.Machine) (substrate.Machine, error) {
	if o.Listen != nil {
		s.Listen = nil
		for _, text := range *o.Listen {
			address, err := listenAddress(text)
			if err != nil {
				return m, err
			}
			s.Listen = append(s.Listen, address)
		}
	}
	if o.Advertise != nil {
		s.Advertise = nil
		for _, text := range *o.Advertise {
			server, err := model.ServerAddress(text)
			if err != nil {
				return m, fmt.Errorf("--advertise: %w", err)
			}
			s.Advertise = append(s.Advertise, server)
		}
	}
	if s.Underlay = cmp.Or(o.Underlay, s.Underlay); s.Underlay.IsValid() {
		return m.At(s.Underlay)
	}
	return m, nil
}

// seenAs is a remembered substrate, with the address that its one real node has now.
func seenAs(s model.Substrate, m substrate.Machine) model.Substrate {
	if len(s.Nodes) != 1 || s.Nodes[0].Simulated || !m.Address.IsValid() {
		return s
	}
	s.Nodes = slices.Clone(s.Nodes)
	s.Nodes[0].Address, s.Nodes[0].MTU = m.Address, m.MTU
	return s
}

// reachArgs are a manager's arguments that say how it is reached.
func (s *settings) reachArgs() []string {
	var args []string
	for _, a := range s.Listen {
		args = append(args, "--listen", a)
	}
	for _, a := range s.Advertise {
		args = append(args, "--advertise", a)
	}
	return args
}

// listenAddress reads ADDR:PORT, ADDR or :PORT, where ADDR is an address of this machine.
func listenAddress(text string) (string, error) {
	host, port, err := model.SplitAddress(text)
	if err == nil && host != "" && net.ParseIP(host) == nil {
		err = fmt.Errorf("%q is no address", host)
	}
	if err != nil {
		return "", fmt.Errorf("--listen %q: %w; write :%d for all addresses of this machine, or ADDRESS:PORT for one",
			text, err, model.DefaultPort)
	}
	return net.JoinHostPort(host, port), nil
}
