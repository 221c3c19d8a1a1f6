package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWorkloadAPIOffersDefaultIdentity(t *testing.T) {
	if c, _ := mustLoad(t, working, nil); c.WorkloadAPI.Socket != "" || len(c.WorkloadAPI.Identities) != 0 {
		t.Errorf("without a word there is %+v", c.WorkloadAPI)
	}
	c, _ := mustLoad(t, working+"workload_api: {socket: ./spiffe}\n", nil)
	if want := []WorkloadIdentity{{Name: "default", Bundle: "ROOTCA"}}; !reflect.DeepEqual(c.WorkloadAPI.Identities, want) {
		t.Errorf("got %+v", c.WorkloadAPI)
	}
	c, _ = mustLoad(t, working+`
secrets: [{name: edge, spiffe_id: "spiffe://example.org/edge"}, {name: partner, kind: trust-bundle, providers: [file]}]
workload_api:
  socket: ./spiffe
  identities: [{name: edge, hint: external}, {name: default, bundle: ROOTCA, hint: internal}]
  federated: {partner.example: partner}
`, nil)
	if w := c.WorkloadAPI; w.Identities[0] != (WorkloadIdentity{"edge", "ROOTCA", "external"}) || w.Federated["partner.example"] != "partner" {
		t.Errorf("got %+v", w)
	}
	c, _ = mustLoad(t, working+"workload_api: {socket: ./spiffe, jwt_svid: {audiences: [db, \"https://*\"]}}\n", nil)
	if want := (JWTSVID{"file", []string{"db", "https://*"}, Duration{5 * time.Minute}}); !reflect.DeepEqual(c.WorkloadAPI.JWTSVID, want) {
		t.Errorf("got %+v", c.WorkloadAPI.JWTSVID)
	}
	if got := NeedRestart([]string{"workload_api.socket"}); len(got) != 1 {
		t.Error("a running agent would not take it over")
	}
}

func TestWorkloadAPIMayShareTheSocketOfSDS(t *testing.T) {
	const shared = working + "socket: {path: ./s, mode: \"0666\"}\nworkload_api: {socket: ./s}\n"
	if c, _ := mustLoad(t, shared, nil); c.WorkloadAPI.Socket != c.ListenPath() {
		t.Error("it does not")
	}
	if c, _ := mustLoad(t, working+"workload_api: {socket: ./other}\n", nil); c.WorkloadAPI.Socket == c.ListenPath() {
		t.Error("it does with another path")
	}
	c := understood(t, shared, nil)
	c.LeaveSocketTo(&Foreign{UID: 7})
	if err := c.Complete(); err == nil || !strings.Contains(err.Error(), "another program (uid 7) serves ./s; write another path") {
		t.Errorf("beside another program: %v", err)
	}
}

func TestFederatedTrustDomainsNeedNoWorkloadAPI(t *testing.T) {
	c, _ := mustLoad(t, working+"secrets: [{name: partner, kind: trust-bundle, providers: [file]}]\nworkload_api: {federated: {partner.example: partner}}\n", nil)
	if c.WorkloadAPI.Federated["partner.example"] != "partner" || len(c.WorkloadAPI.Identities) != 0 {
		t.Errorf("got %+v", c.WorkloadAPI)
	}
}

func TestWrongWorkloadAPIIsRefused(t *testing.T) {
	secrets := working + "secrets: [{name: names, dns_names: [a.example]}, {name: edge, spiffe_id: \"spiffe://example.org/edge\"}]\n"
	for file, want := range map[string]string{
		"{socket: ./var/run/secrets/credential-uds/files-socket}":                       "that is socket.files_path",
		"{identities: [{name: names}]}":                                                 "has no spiffe_id",
		"{socket: " + strings.Repeat("x", 108) + "}":                                    "at most 107",
		"{socket: s, identities: [{name: unknown}]}":                                    `workload_api.identities.unknown.name is "unknown": no secret of that name`,
		"{socket: s, identities: [{hint: x}]}":                                          "workload_api.identities.0.name is not set",
		"{socket: s, identities: [{name: ROOTCA}]}":                                     "this secret is a trust-bundle; name a key-pair",
		"{socket: s, identities: [{name: default, bundle: edge}]}":                      "this secret is a key-pair; name a trust-bundle",
		"{socket: s, identities: [{name: names}]}":                                      "has no spiffe_id",
		"{socket: s, identities: [{name: default, hint: a}, {name: edge, hint: a}]}":    `workload_api.identities.edge.hint is "a": duplicate hint`,
		"{socket: s, identities: [{name: default, hint: a}, {name: default, hint: b}]}": `has "default" twice`,
		"{socket: s, federated: {Partner.example: ROOTCA}}":                             `trust domain "Partner.example" is not valid`,
		"{socket: s, federated: {partner.example: default}}":                            "name a trust-bundle",
		"{jwt_svid: {audiences: [db]}}":                                                 "workload_api.socket is not set",
		"{socket: s, jwt_svid: {provider: file}}":                                       "workload_api.jwt_svid.audiences: no audience is allowed",
		"{socket: s, jwt_svid: {audiences: [\"a*b\"]}}":                                 "with * at the end only",
		"{socket: s, jwt_svid: {audiences: [db], provider: ca}}":                        `workload_api.jwt_svid.provider is "ca": write the name of a provider: file`,
		"{socket: s, jwt_svid: {audiences: [db], ttl: 2h}}":                             `workload_api.jwt_svid.ttl is "2h0m0s": must be 30s to 1h0m0s`,
		"{sockets: s}": "sockets",
	} {
		if _, _, err := load(secrets+"workload_api: "+file+"\n", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", file, err, want)
		}
	}
}

func TestExperimentIsOffUnlessNamed(t *testing.T) {
	const socket = working + "workload_api: {socket: /run/w/s}\n"
	c, _ := mustLoad(t, socket, nil)
	if c.ServesWIT() {
		t.Error("it is on")
	}
	c, _ = mustLoad(t, socket+"experimental: [wit-svid]\n", nil)
	if !c.ServesWIT() || c.WITProvider() != c.DefaultProvider || !strings.Contains(strings.Join(c.Warnings(), "\n"), "experimental has wit-svid") {
		t.Errorf("provider %q, warnings %q", c.WITProvider(), c.Warnings())
	}
	for settings, want := range map[string]string{
		socket + "experimental: [wit-svid, wit]\n": `experimental is "wit": this version has wit-svid and wit-bundle`,
		working + "experimental: [wit-svid]\n":     "write workload_api.socket",
	} {
		if _, _, err := load(settings, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", settings, err, want)
		}
	}
}
