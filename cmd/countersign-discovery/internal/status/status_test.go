package status

import (
	"html"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/secrets"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	secretURL  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func streamOf(number uint64, account, cluster string, types ...discovery.TypeStatus) discovery.StreamStatus {
	return discovery.StreamStatus{
		Number: number, Service: "ADS", Peer: "10.2.0.7:41234", Identity: "spiffe://cluster.local/ns/shop/sa/" + account, Kind: "certificate", Cluster: cluster,
		Node: "router~10.2.0.7~" + account + "-7d9c6b5f4-x2x9z.shop~shop.svc.cluster.local", Since: noon.Add(-7*time.Hour - 3*time.Minute), Expires: noon.Add(20 * time.Minute), Types: types,
	}
}

const (
	older = "3f0c9a7de1b24458a1f70c2d9be66a01"
	newer = "b81d22c09e5f4c37bb0a4d7f62e1c9d4"
)

// atThree is a service that has something wrong of each kind.
func atThree() Report {
	reason := `Error adding/updating listener(s) ingress: Failed to load certificate chain from <inline>, only P-256, P-384 or P-521 ECDSA certificates are supported`
	refusal := &discovery.Refusal{Version: newer, Reason: reason, At: noon.Add(-3 * time.Minute)}
	return Report{
		At: noon, Build: buildinfo.Info{Version: "0.1.0", Go: "go1.26", Platform: "linux/amd64"},
		Server: discovery.Status{NotReady: "the remote clusters west are not synced", Streams: []discovery.StreamStatus{
			streamOf(1, "gateway", "home", discovery.TypeStatus{Type: clusterURL, Subscribed: 12, Pushes: 4, Sent: newer, Acked: newer},
				discovery.TypeStatus{Type: secretURL, Subscribed: 2, Pushes: 1, Sent: older, Acked: older, Refused: refusal}),
			streamOf(2, "api", "east", discovery.TypeStatus{Type: secretURL, Subscribed: 1, Pushes: 1, Sent: older}),
			streamOf(3, "egress", "east", discovery.TypeStatus{Type: secretURL, Subscribed: 1, Pushes: 2, Sent: newer, Acked: older, Refused: refusal}),
			streamOf(4, "late", "west"),
		}},
		Secrets: []secret.Status{
			{Name: "default", Held: true, Item: &secret.Item{NotBefore: noon.Add(-20 * time.Hour), NotAfter: noon.Add(4 * time.Hour), Identity: pki.Identity{DNSNames: []string{"countersign-discovery.istio-system.svc"}}},
				Failure: &secret.Failure{Reason: "unavailable", Text: "citadel: istiod.istio-system.svc:15012: connection refused", At: noon.Add(-time.Minute), NextTry: noon.Add(time.Minute)}},
			{Name: "ROOTCA", Held: true, Item: &secret.Item{NotBefore: noon.Add(-20 * time.Hour), NotAfter: noon.Add(3000 * time.Hour)}},
			{Name: "file-root:/etc/east.pem", Held: false},
		},
		Providers: []overview.Provider{{Name: "citadel", Provider: "citadel", Version: "0.1.0", State: "circuit open", Restarts: 9, LastError: "it ended with exit code 1", NextStart: noon.Add(4 * time.Minute)}},
		TrustDomains: []TrustDomain{
			{Name: "cluster.local", From: "the server's own CA", Roots: 1},
			{Name: "partner.example", From: "https://partner.example/bundle", Roots: 2, Fetched: noon.Add(-26 * time.Hour), Problem: "Get \"https://partner.example/bundle\": dial tcp 192.0.2.7:443: i/o timeout"},
			{Name: "nobody.example", From: "/etc/countersign/nobody.pem"},
		},
		Clusters: []fleet.Status{
			{ID: "home", Local: true, State: fleet.Synced, Serving: true, Secrets: 210, ConfigMaps: 40, Refused: []string{"secret istio-system/copy"}},
			{ID: "east", State: fleet.Failed, Serving: true, Source: "secret istio-system/remotes", Since: noon.Add(-90 * time.Hour), Server: "https://east.example:6443", Fault: "the API server https://east.example:6443 answers 401: Unauthorized", Secrets: 77},
			{ID: "west", State: fleet.Connecting, Source: "file /etc/remotes/west.yaml", Since: noon.Add(-40 * time.Second), Server: "https://west.example:6443"},
		},
		Unknown: []config.ClusterName{{Setting: "secrets.may_read_config_cluster", ID: "wets"}},
		Watched: WatchedOf([]string{"home", "east", "west"}, []secrets.Watched{
			{Cluster: "home", Namespace: "shop", Name: "web-tls", State: secrets.Ending, Ends: noon.Add(30 * time.Hour)},
			{Cluster: "home", Namespace: "shop", Name: "fine", State: secrets.Valid, Ends: noon.Add(3000 * time.Hour)},
			{Cluster: "east", Namespace: "shop", Name: "old-tls", State: secrets.Expired, Ends: noon.Add(-50 * time.Minute)},
			{Cluster: "east", Namespace: "shop", Name: "half", CA: true, State: secrets.Broken, Problem: "it has neither cacert nor ca.crt"},
		}),
		Kubernetes: &Kubernetes{Kept: 3, KeptBytes: 40960, Refused: map[secrets.Reason]uint64{}},
		Folder: &folder.Status{Path: "/etc/countersign/resources", Files: []folder.FileStatus{
			{Name: "web.yaml", State: folder.Served, Resources: 12, Warnings: []string{"the route web names the cluster api, which is in no file"}},
			{Name: "ingress.yaml", State: folder.Kept, Resources: 2, Reason: "ingress.yaml: listener ingress: address: value is required"},
			{Name: "new.yaml", State: folder.Refused, Reason: "new.yaml: line 7: mapping values are not allowed in this context"},
		}},
	}
}

func shownPage(r Report) string {
	w := httptest.NewRecorder()
	Show(w, r)
	return w.Body.String()
}

// textOf is a page's text, a tag being a space.
func textOf(page string) string {
	page = regexp.MustCompile(`(?s)<(style|script)>.*?</(style|script)>`).ReplaceAllString(page, "")
	return html.UnescapeString(strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")), " "))
}

func TestPageShowsWhichProcessItIs(t *testing.T) {
	t.Parallel()
	r := atThree()
	r.Process = daemon.Process{
		Machine:   overview.Machine{Host: "edge-1", PID: 4711, Started: noon.Add(-time.Hour), Config: "/etc/countersign/discovery.yaml"},
		Addresses: map[string]string{"listen.tls": ":15012"}, Restart: []string{"the configuration file"},
	}
	text := textOf(shownPage(r))
	for _, want := range []string{
		"Machine edge-1 Version 0.1.0 Process 4711 Started 11:00:00 (1 h 0 min ago) Configuration /etc/countersign/discovery.yaml listen.tls :15012",
		"Restart pending for the configuration file", "A restart is pending",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
}

func TestPageListsWorstTroubleFirst(t *testing.T) {
	t.Parallel()
	r := atThree()
	var got []string
	for _, of := range r.Problems() {
		got = append(got, of.Grade+": "+of.What)
		if of.Do == "" {
			t.Errorf("nothing is to be done about %q", of.What)
		}
	}
	want := []string{
		"bad: Requests are rejected", "bad: file-root:/etc/east.pem is not held", "bad: Provider citadel is not ready: circuit open", "bad: Cluster west is not synced yet",
		"bad: Watched Kubernetes secrets malformed: 1", "bad: Watched Kubernetes secrets expired: 1", "bad: No caller from nobody.example can be authenticated", "bad: File new.yaml is invalid",
		"fair: default cannot be renewed", "fair: Duplicate cluster ID home", "fair: Cluster east is not being watched", "fair: secrets.may_read_config_cluster names an unknown cluster", "fair: Watched Kubernetes secrets expiring soon: 1",
		"fair: The roots of partner.example cannot be refreshed", "fair: File ingress.yaml is invalid", "fair: Clients rejecting a Secret: 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	text := textOf(shownPage(r))
	for _, want := range []string{
		"Not ready: the remote clusters west are not synced.", "Clients rejecting a Secret: 1 3 min ago", "its kubeconfig comes from secret istio-system/remotes",
		"secret shop/old-tls east certificate expired 11:10:00 (50 min ago)", "citadel circuit open", "12:04:00 (in 4 min)", "16:00:00 (in 4 h 0 min)",
		"by certificate, cluster east, from 10.2.0.7:41234, opened 7 h 3 min ago, ends in 20 min", "rejected 3 min ago Error adding/updating listener(s) ingress: Failed to load certificate chain from <inline>",
		"accepted b81d22c0 was rejected 3 min ago", "no response yet", "no requests yet",
	} {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
			t.Errorf("the page does not show %q:\n%s", want, text)
		}
	}
}

func TestPageShowsThatAllIsWell(t *testing.T) {
	t.Parallel()
	r := Report{
		At: noon, Server: discovery.Status{Streams: []discovery.StreamStatus{streamOf(1, "web", "home", discovery.TypeStatus{Type: secretURL, Subscribed: 1, Pushes: 1, Sent: newer, Acked: newer})}},
		Secrets:      []secret.Status{{Name: "default", Held: true}},
		Providers:    []overview.Provider{{Name: "citadel", State: "ready"}},
		TrustDomains: []TrustDomain{{Name: "cluster.local", Roots: 1}},
		Clusters:     []fleet.Status{{ID: "home", Local: true, State: fleet.Synced, Serving: true}},
		Watched:      WatchedOf([]string{"home"}, []secrets.Watched{{Cluster: "home", Name: "fine", State: secrets.Valid, Ends: noon.Add(time.Hour)}}),
		Folder:       &folder.Status{Files: []folder.FileStatus{{Name: "web.yaml", State: folder.Served}}},
	}
	if text := textOf(shownPage(r)); r.Summary() != (mark{Words: "No problems.", Grade: good}) || strings.Contains(text, "Problems") || strings.Contains(text, "To replace") {
		t.Errorf("%+v: %+v\n%s", r.Summary(), r.Problems(), text)
	}
	r.Server.Draining, r.Server.NotReady = true, "it is shutting down"
	if got := r.Summary(); got != (mark{Words: "Shutting down.", Grade: fair}) || len(r.Problems()) != 0 {
		t.Errorf("%+v: %+v", got, r.Problems())
	}
}

func TestFolderFaultAndExpiryAreTroubles(t *testing.T) {
	t.Parallel()
	r := Report{At: noon, Secrets: []secret.Status{{Name: "default", ExpiredSince: noon}}, Folder: &folder.Status{Path: "/etc/resources", Fault: "permission denied"}}
	all := r.Problems()
	if len(all) != 2 || all[0].What != "default has expired" || all[1].What != "Folder /etc/resources cannot be read" || all[1].Detail != "permission denied" {
		t.Errorf("%+v", all)
	}
}

func TestForeignTextIsEscaped(t *testing.T) {
	t.Parallel()
	const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>'</style>{{.}}`
	r := atThree()
	s := streamOf(9, hostile, hostile, discovery.TypeStatus{Type: hostile, Sent: hostile, Acked: older, Pushes: 1, Refused: &discovery.Refusal{Version: hostile, Reason: hostile}})
	s.Node, s.Peer = hostile, hostile
	r.Server.Streams, r.Server.NotReady = append(r.Server.Streams, s), hostile
	r.Clusters = append(r.Clusters, fleet.Status{ID: hostile, State: fleet.Failed, Fault: hostile, Source: hostile, Server: hostile, Refused: []string{hostile}})
	r.Watched = WatchedOf(nil, []secrets.Watched{{Cluster: hostile, Namespace: hostile, Name: hostile, State: secrets.Broken, Problem: hostile}})
	r.TrustDomains = []TrustDomain{{Name: hostile, From: hostile, Problem: hostile}}
	r.Folder.Files = []folder.FileStatus{{Name: hostile, State: folder.Refused, Reason: hostile, Warnings: []string{hostile}}}
	w := httptest.NewRecorder()
	Show(w, r)
	page, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
	if strings.Count(page, "<script") != 1 || strings.Contains(page, "<img") || strings.Count(page, "</style>") != 1 || strings.Contains(page, "ZgotmplZ") {
		t.Errorf("it is:\n%s", page)
	}
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "script-src 'sha256-") || !strings.Contains(page, operatorpage.Script) || !strings.Contains(page, ".error.fair-edge") {
		t.Errorf("the policy is %q", policy)
	}
}

func TestRefusingStreamsAreShownAmongMany(t *testing.T) {
	t.Parallel()
	r := Report{At: noon}
	for i := range uint64(5000) {
		r.Server.Streams = append(r.Server.Streams, streamOf(i, "web", "home", discovery.TypeStatus{Type: secretURL, Sent: newer, Acked: newer}))
	}
	r.Server.Streams[4321] = streamOf(4321, "last", "home", discovery.TypeStatus{Type: secretURL, Sent: newer, Acked: older, Refused: &discovery.Refusal{Version: newer, Reason: "no"}})
	shown := view{Report: r}.Streams()
	if len(shown) != maxStreams || shown[0].Number != 4321 || shown[1].Number != 0 || shown[2].Number != 1 {
		t.Errorf("%d are shown, first %d", len(shown), shown[0].Number)
	}
	if text := textOf(shownPage(r)); !strings.Contains(text, "Streams (5000)") || !strings.Contains(text, "These are the first 200; /status.json lists all.") {
		t.Error(text)
	}
}

func TestTroubleListIsCut(t *testing.T) {
	t.Parallel()
	r := Report{At: noon, Folder: &folder.Status{}}
	const most = 50
	for range most + 3 {
		r.Folder.Files = append(r.Folder.Files, folder.FileStatus{Name: "x.yaml", State: folder.Kept})
	}
	if text := textOf(shownPage(r)); strings.Count(text, "File x.yaml is invalid") != most || !strings.Contains(text, "3 more in the sections below") {
		t.Error(text)
	}
}
