package program

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
)

func TestLimitsOfAMeshAreThoseOfTheFileSinceTheStart(t *testing.T) {
	t.Parallel()
	r, _, _ := newMesh(t, strings.Replace(forMesh, "istio:\n", "istio:\n  limits: {connections_of_address: 1}\n", 1))
	first, second := as(t, r.dial(t, r.root(t)), "web-token", ""), as(t, r.dial(t, r.root(t)), "web-token", "")
	first.gets(nil, webID)
	second.refused(nil, codes.Unavailable)
	r.measures(t, `countersign_ra_istio_calls_total{result="own-limit"} `)

	path := filepath.Join(r.dir, "c.yaml")
	write(t, path, strings.Replace(read(t, path), "connections_of_address: 1}", "connections_of_address: 2}\n  hold: 20s", 1))
	r.Signal(syscall.SIGHUP)
	const says = "settings=\"istio.hold, istio.limits.connections_of_address\""
	r.until(t, says, func() bool { return strings.Contains(r.Log.String(), says) })
	second.refused(nil, codes.Unavailable)
}
