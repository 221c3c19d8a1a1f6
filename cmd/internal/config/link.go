package config

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// linkName is how the variables end that Kubernetes sets in each pod for each Service of
// its namespace, after the Service's name: those of its own, and those of docker's links.
var linkName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^COUNTERSIGN(?:_[A-Z0-9]+)*?_(?:(SERVICE_HOST)|(SERVICE_PORT)(?:_[A-Z0-9_]+)?|PORT(?:_([0-9]+)_(TCP|UDP|SCTP)(?:_(PROTO|PORT|ADDR))?)?)$`)
})

// isLink reports whether a variable is one that Kubernetes has set for a Service whose name
// begins with "countersign". The value has to fit, so that a mistyped setting is not one.
func isLink(name, value string) bool {
	found := linkName().FindStringSubmatch(name)
	if found == nil {
		return false
	}
	host, port, number, protocol, part := found[1], found[2], found[3], strings.ToLower(found[4]), found[5]
	switch {
	case host != "", part == "ADDR":
		return isAddress(value)
	case port != "":
		return isPort(value)
	case part == "PROTO":
		return value == protocol
	case part == "PORT":
		return value == number && isPort(value)
	default:
		return isLinkURL(value, protocol, number)
	}
}

// isLinkURL reports whether the value is as tcp://10.0.0.1:443, with that protocol and port
// where they are not empty.
func isLinkURL(value, protocol, number string) bool {
	scheme, at, _ := strings.Cut(value, "://")
	host, port, err := net.SplitHostPort(at)
	return err == nil && isProtocol(scheme) && isAddress(host) && isPort(port) &&
		(protocol == "" || scheme == protocol) && (number == "" || port == number)
}

func isProtocol(word string) bool { return word == "tcp" || word == "udp" || word == "sctp" }

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}
