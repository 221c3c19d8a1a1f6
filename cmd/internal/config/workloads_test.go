package config

import (
	"slices"
	"strings"
	"testing"
)

const judging = `
namespace: demo
service_account: web
providers:
  - name: citadel
    sha256: ` + pin + `
    settings: {address: "istiod.test:15012"}
`

func TestWorkloadsTakeIdentitiesOfTokensAndPeers(t *testing.T) {
	c, _ := mustLoad(t, judging+`
trust_domain: shop.test
workloads:
  verified_by: authority
  limits: {identities: 50}
  peers:
    - {uid: 1001, spiffe_id: "spiffe://shop.test/ns/shop/sa/db"}
    - {uid: 1002, spiffe_id: "spiffe://other.test/cron"}
`, nil)
	w := c.Workloads
	if !w.On() || w.SPIFFEID != "spiffe://shop.test/ns/{kubernetes.io/namespace}/sa/{kubernetes.io/serviceaccount/name}" {
		t.Errorf("the template is %q", w.SPIFFEID)
	}
	if w.Peers[0].SPIFFEID != "spiffe://shop.test/ns/shop/sa/db" || w.Peers[1].SPIFFEID != "spiffe://other.test/cron" {
		t.Errorf("the peers are %+v", w.Peers)
	}
	if w.Limits != (WorkloadLimits{50, 100, 16, 16, 16}) {
		t.Errorf("workloads are %+v", w)
	}
	if s := c.Secrets[0]; s.Name != DefaultSecret || s.SPIFFEID != "" || !slices.Equal(s.Providers, []string{"citadel"}) {
		t.Errorf("default is %+v", s)
	}
	if c.Rotation.Jitter != 0.1 || c.Files.Mounted != MountedOff || len(c.Files.Folders) != 0 {
		t.Errorf("jitter is %v, files are %+v", c.Rotation.Jitter, c.Files)
	}
}

func TestTokensAreVerifiedByJWKSOrTokenReview(t *testing.T) {
	// With them, the authority may be one that signs for every caller.
	for _, by := range []string{
		"{verified_by: jwks, jwks: {issuer: \"https://i.test\", audiences: [ca]}, spiffe_id: \"spiffe://a/{email}\"}",
		"{verified_by: jwks, jwks: {issuer: mine, jwks_file: /keys, audiences: [ca], root_file: /roots}}",
		"{verified_by: token_review, token_review: {url: \"https://k.test:6443\", token_file: /t, audiences: [ca]}}",
	} {
		mustLoad(t, working+"workloads: "+by+"\n", nil)
	}
}

func TestExchangeWithoutSourceServesStreamTokens(t *testing.T) {
	const exchanging = working + "    token: {exchange: [{url: \"https://sts.test\"}]}\n"
	mustLoad(t, exchanging+"workloads: {verified_by: jwks, jwks: {issuer: \"https://i.test\", audiences: [ca]}}\n", nil)
	if _, _, err := load(exchanging, nil); err == nil || !strings.Contains(err.Error(), "has no token to exchange") {
		t.Errorf("got %v", err)
	}
}

func TestConfiguredJitterIsKept(t *testing.T) {
	c, _ := mustLoad(t, judging+"workloads: {verified_by: authority}\nrotation: {jitter: 0.01}\n", nil)
	if c.Rotation.Jitter != 0.01 {
		t.Errorf("jitter is %v", c.Rotation.Jitter)
	}
	if c, _ = mustLoad(t, judging+"workloads: {verified_by: authority}\n", []string{"COUNTERSIGN_ROTATION_JITTER=0.02"}); c.Rotation.Jitter != 0.02 {
		t.Errorf("jitter is %v", c.Rotation.Jitter)
	}
}

func TestWrongWorkloadsStopTheStart(t *testing.T) {
	const on = "workloads:\n  verified_by: authority\n"
	const jwks, review = "workloads:\n  verified_by: jwks\n", "workloads:\n  verified_by: token_review\n"
	const issuer, server = "issuer: \"https://i.test\"", "url: \"https://k.test\", token_file: /t"
	for settings, want := range map[string]string{
		"workloads: {verified_by: everybody}":                        `workloads.verified_by is "everybody": must be authority, jwks or token_review`,
		"workloads: {spiffe_id: \"spiffe://a/{sub}\"}":               "workloads is off: set workloads.verified_by",
		"workloads: {jwks: {issuer: x}}":                             "workloads is off: set workloads.verified_by",
		jwks:                                                         "workloads.jwks: JWT issuer \"\": an issuer is required",
		jwks + "  jwks: {" + issuer + "}":                            "an audience is required",
		jwks + "  jwks: {" + issuer + ", audiences: [\"\"]}":         "an audience is required",
		jwks + "  jwks: {issuer: \"http://i.test\", audiences: [a]}": "https",
		jwks + "  jwks: {" + issuer + ", audiences: [a], jwks_url: \"http://i.test\"}":               "https",
		jwks + "  jwks: {" + issuer + ", audiences: [a], jwks_url: \"https://i\", jwks_file: /keys}": "from a URL or from a file, not both",
		jwks + "  jwks: {" + issuer + ", audiences: [a]}\n  token_review: {url: \"https://k\"}":      "workloads.token_review is set, and verified_by is \"jwks\"",
		on + "  jwks: {issuer: i}": "workloads.jwks is set, and verified_by is \"authority\": write jwks there, or remove it",
		review:                     "workloads.token_review.token_file is not set",
		review + "  token_review: {token_file: /t}":                                                      "workloads.token_review: TokenReview at \"\"",
		review + "  token_review: {" + server + "}":                                                      "an audience is required",
		review + "  spiffe_id: \"spiffe://a/{email}\"\n  token_review: {" + server + ", audiences: [a]}": "workloads.spiffe_id: a token review has only kubernetes.io/namespace",
		"workloads: {jwks: {issuer: i}}":                                                                 "workloads is off: set workloads.verified_by",
		"workloads: {verify: authority}":                                                                 `unknown setting "workloads.verify"`,
		on + "  spiffe_id: spiffe://shop/web":                                                            "no claim in it",
		on + "  spiffe_id: \"spiffe://{iss}/web\"":                                                       "takes its trust domain from a claim",
		on + "  limits: {identities: 0}":                                                                 "workloads.limits.identities is 0: write 1 to 1000000",
		on + "  limits: {names: 2000000}":                                                                "workloads.limits.names is 2000000: write 1 to 1000000",
		on + "  peers: [{uid: 1}]":                                                                       "workloads.peers.0.spiffe_id is not set: write the SPIFFE ID of this user's workloads",
		on + "  peers: [{uid: 1, spiffe_id: \"spiffe://a/b\"}, {uid: 1, spiffe_id: \"spiffe://a/c\"}]":   "workloads.peers.1.uid is 1: write each user once",
		"workloads: {spiffe_id: \"spiffe://a/{sub}\", peers: [{uid: 1, spiffe_id: \"spiffe://a/b\"}]}":   "it has no effect unless tokens are verified",
		on + "secrets: [{name: default, spiffe_id: \"spiffe://a/b\"}]":                                   "secrets.default has an identity",
		on + "secrets: [{name: default, providers: [a, b]}]":                                             "exactly one provider signs",
		on + "secrets: [{name: other, dns_names: [a.test]}]":                                             "secrets.other is a key pair: with workloads, each stream has its own",
		on + "files: {secrets: [{name: x, roots: /etc/r.pem}]}":                                          `files.secrets has "x": with workloads, nothing is served from files`,
		on + "files: {mounted: only}":                                                                    "files.mounted is \"only\"",
		on + "workload_api: {socket: /run/spiffe}":                                                       "workload_api.socket is \"/run/spiffe\": its calls carry no token: with workloads, add the users and programs that it is for to workloads.peers",
		on + "workload_api: {identities: [{name: default}]}":                                             "workload_api.identities: with workloads, each stream has its own identity",
		on + "outputs: [{name: o, folder: /etc/o}]":                                                      "outputs.o: with workloads, nothing is written to files",
	} {
		_, _, err := load(judging+settings+"\n", nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", settings, err, want)
		}
	}
}

func TestWorkloadAPIIsForPeers(t *testing.T) {
	const api = "workload_api: {socket: /run/spiffe, jwt_svid: {audiences: [a]}}\n"
	c, _ := mustLoad(t, working+api+`workloads: {peers: [{uid: 1, executable: /a, spiffe_id: "spiffe://a/b"}, {uid: 1, cgroup: /c, spiffe_id: "spiffe://a/c"}]}`+"\n", nil)
	if c.WorkloadAPI.Socket != "/run/spiffe" || len(c.WorkloadAPI.Identities) != 0 || c.WorkloadAPI.JWTSVID.Provider == "" {
		t.Errorf("got %+v", c.WorkloadAPI)
	}
}

func TestUnverifyingAuthorityCannotVerifyWorkloads(t *testing.T) {
	_, _, err := load(working+"workloads: {verified_by: authority}\n", nil)
	if err == nil || !strings.Contains(err.Error(), "does not verify tokens") {
		t.Errorf("got %v", err)
	}
	mustLoad(t, working+"workloads: {peers: [{uid: 1, spiffe_id: \"spiffe://a/b\"}]}\n", nil)
}

func TestWorkloadChangesNeedingRestartAreNamed(t *testing.T) {
	changed := []string{"ttl", "rotation.ratio", "secrets.default.provider", "log.level", "workloads.limits.names"}
	if got := (Workloads{VerifiedBy: ByAuthority}).NeedRestart(changed); !slices.Equal(got, changed[:3]) {
		t.Errorf("got %q", got)
	}
	if got := (Workloads{}).NeedRestart(changed); got != nil {
		t.Errorf("got %q", got)
	}
	if got := NeedRestart(changed); !slices.Equal(got, []string{"workloads.limits.names"}) {
		t.Errorf("got %q", got)
	}
}

func TestWorkloadsMayHaveFederatedTrustDomains(t *testing.T) {
	c, _ := mustLoad(t, judging+`
workloads: {verified_by: authority}
secrets: [{name: partner, kind: trust-bundle}]
workload_api: {federated: {partner.example: partner}}
`, nil)
	if c.WorkloadAPI.Federated["partner.example"] != "partner" {
		t.Errorf("got %+v", c.WorkloadAPI)
	}
}
