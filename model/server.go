package model

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// DefaultPort is the TCP port on which managers serve other machines unless it is said; IANA has given it to nobody.
const DefaultPort = 7455

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]{0,252}[A-Za-z0-9])?$`)

// ServerAddress reads where a manager is: HOST or HOST:PORT.
func ServerAddress(text string) (string, error) {
	host, port, err := SplitAddress(text)
	if err == nil && net.ParseIP(host) == nil && !hostName.MatchString(host) {
		err = fmt.Errorf("%q is neither a name nor an address", host)
	}
	if err != nil {
		return "", fmt.Errorf("%q does not say where the manager is (%w): HOST:PORT was expected", text, err)
	}
	return net.JoinHostPort(host, port), nil
}

// SplitAddress splits HOST:PORT, where the port may be left out; the host is not looked at.
func SplitAddress(text string) (host, port string, err error) {
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return ip.String(), strconv.Itoa(DefaultPort), nil
	}
	if !strings.Contains(text, ":") {
		return text, strconv.Itoa(DefaultPort), nil
	}
	if host, port, err = net.SplitHostPort(text); err != nil {
		return "", "", err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "", fmt.Errorf("%q is no port from 1 to 65535", port)
	}
	return host, port, nil
}
