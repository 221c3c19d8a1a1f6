package e2e

import (
	"strings"
	"testing"

	service "github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
)

// visited has an Envoy that serves the cluster web to a visitor.
func visited(t *testing.T, api apiType) (*mesh, *envoy, *visitor) {
	t.Helper()
	needEnvoy(t)
	m := startMesh(t)
	m.write(t, "web.yaml", endpointsFile("web", backend(t, "web 1")))
	m.write(t, "shop.yaml", endpointsFile("shop", backend(t, "shop 1")))
	m.secrets.put(t, m.root.secret(t, "ingress-cert", "/first"))
	m.start(t)
	e := m.envoy(t, api)
	v := m.visit(t, e.address(t))
	v.hears(t, "web 1")
	return m, e, v
}

func TestEnvoyKeepsRunningWithoutServiceAndResumes(t *testing.T) {
	byEachAPI(t, goesOnAndResumes)
}

func goesOnAndResumes(t *testing.T, api apiType) {
	m, e, v := visited(t, api)
	m.stop(t)
	poll(t, "Envoy to notice", func() bool { return e.stats(t, "connected_state")["control_plane.connected_state"] == 0 })
	m.write(t, "web.yaml", endpointsFile("web", backend(t, "web 2")))
	v.awaitHandshakes(t, 20)
	v.hears(t, "web 1")
	m.start(t)
	v.hears(t, "web 2")
	v.rotates(t, m)
	if pushes := m.status(folder.ClusterURL).Pushes; api == incremental && pushes != 0 {
		t.Errorf("Envoy brought the clusters along, and they came again %d times", pushes)
	}
	e.tookAll(t)
	v.noFailures(t)
}

// No rule of Envoy's messages forbids a bad pattern; Envoy does.
func TestEnvoyNACKIsInStatusAndTrafficGoesOn(t *testing.T) {
	byEachAPI(t, refusesARoute)
}

func refusesARoute(t *testing.T, api apiType) {
	m, e, v := visited(t, api)
	m.write(t, "routes.yaml", strings.Replace(routesFile, "prefix: /", `safe_regex: {regex: "("}`, 1))
	var routes service.TypeStatus
	poll(t, "the refusal in the status", func() bool { routes = m.status(folder.RouteURL); return routes.Refused != nil })
	if !strings.Contains(routes.Refused.Reason, "missing )") || routes.Acked == "" || routes.Acked == routes.Refused.Version {
		t.Errorf("the status shows %+v, refused %+v", routes, routes.Refused)
	}
	v.hears(t, "web 1")
	m.write(t, "routes.yaml", strings.Replace(routesFile, "cluster: web", "cluster: shop", 1))
	v.hears(t, "shop 1")
	if n := e.stats(t, "rds.*update_rejected")["http.ingress.rds.routes.update_rejected"]; n != 1 {
		t.Errorf("Envoy refused %d times: it is sent again", n)
	}
	v.noFailures(t)
}
