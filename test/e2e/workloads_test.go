package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

const tokenSecret = "what the strict provider and this test know"

// tokenFor returns a JWT of that subject, signed with secret.
func tokenFor(subject, secret string, life time.Duration, serial int) string {
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d,"jti":"%d"}`, subject, time.Now().Add(life).Unix(), serial)
	signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// startWorkloads starts an agent of many identities, whose authority looks at tokens.
func startWorkloads(t *testing.T, settings map[string]any) *agent {
	t.Helper()
	a := prepareAgent(t, agentConfig{})
	workloads := map[string]any{"verified_by": "authority", "spiffe_id": "spiffe://" + trustDomain + "/{sub}"}
	tokenFile := settings["token_file"]
	delete(settings, "token_file")
	all := map[string]any{
		"trust_domain": trustDomain, "ttl": "1h", "runtime_dir": a.runtimeDir(), "workloads": workloads,
		"socket": map[string]any{"path": a.socket}, "status": map[string]any{"address": "unix:" + a.statusSocket()},
		"providers": []map[string]any{{
			"name": "strict", "sha256": pinOf(t, filepath.Join(a.bin, "countersign-provider-strict")), "settings": map[string]any{"dir": a.ca, "secret": tokenSecret},
			"token": map[string]any{"file": tokenFile},
		}},
	}
	for key, value := range settings {
		if more, ok := value.(map[string]any); ok && key == "workloads" {
			maps.Copy(workloads, more)
			continue
		}
		all[key] = value
	}
	content, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	writeWhole(t, a.config(), content)
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	return a
}

// counts are the numbers on the agent's status.
func (a *agent) workloads(t *testing.T) map[string]any {
	t.Helper()
	response, err := a.status.Get("http://localhost/status")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	var report struct {
		Workloads map[string]any `json:"workloads"`
	}
	if err = errors.Join(err, json.Unmarshal(text, &report)); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v", response.StatusCode, err)
	}
	return report.Workloads
}

// workloadOf returns whose certificate it is.
func workloadOf(secret *tlsv3.Secret) (string, error) {
	block, _ := pem.Decode(secret.GetTlsCertificate().GetCertificateChain().GetInlineBytes())
	if block == nil {
		return "", errors.New("there is no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil || len(leaf.URIs) != 1 {
		return "", fmt.Errorf("it has %d names: %w", len(leaf.URIs), err)
	}
	return strings.TrimPrefix(leaf.URIs[0].String(), "spiffe://"+trustDomain+"/"), nil
}

func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// fetchOwn returns the answer to a fetch of "default" with that token.
func fetchOwn(ctx context.Context, client secretv3.SecretDiscoveryServiceClient, token string) (*tlsv3.Secret, error) {
	answer, err := client.FetchSecrets(withToken(ctx, token), &discoveryv3.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{"default"}})
	if err != nil {
		return nil, err
	}
	secrets, err := secretsOf(answer)
	return secrets["default"], err
}

func TestEachWorkloadOfMachineHasItsOwnCertificate(t *testing.T) {
	t.Parallel()
	a := startWorkloads(t, nil)
	client := dialSDS(t, a.socket)
	ctx := withDeadline(t)
	for i, name := range []string{"web", "db", "web"} {
		got, err := fetchOwn(ctx, client, tokenFor(name, tokenSecret, time.Hour, i))
		if err != nil {
			t.Fatal(err)
		}
		if is, err := workloadOf(got); err != nil || is != name {
			t.Errorf("%s has the certificate of %q (%v)", name, is, err)
		}
	}
	if n := a.workloads(t); n["identities"] != 2.0 || n["rotations"] != 2.0 || n["joins"] != 1.0 {
		t.Errorf("the status shows %v", n)
	}
}

func TestPeerHasIdentityMappedToItsUser(t *testing.T) {
	t.Parallel()
	own := tokenFor("mapped", tokenSecret, time.Hour, 0)
	file := filepath.Join(proctest.Folder(t), "token")
	writeWhole(t, file, []byte(own))
	a := startWorkloads(t, map[string]any{"workloads": map[string]any{
		"verified_by": nil, "spiffe_id": nil,
		"peers": []map[string]any{{"uid": os.Getuid(), "spiffe_id": "spiffe://" + trustDomain + "/mapped"}},
	}, "token_file": file})
	client := dialSDS(t, a.socket)
	ctx := withDeadline(t)
	answer, err := client.FetchSecrets(ctx, &discoveryv3.DiscoveryRequest{TypeUrl: secretType, ResourceNames: []string{"default", "ROOTCA"}})
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := secretsOf(answer)
	if err != nil || len(secrets) != 2 {
		t.Fatalf("%d secrets, %v", len(secrets), err)
	}
	if is, err := workloadOf(secrets["default"]); err != nil || is != "mapped" {
		t.Errorf("the peer has the certificate of %q (%v)", is, err)
	}
	if _, err := fetchOwn(ctx, client, own); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a token that nobody verifies: %v", err)
	}
}

func TestAgentGivesNothingForForgedToken(t *testing.T) {
	t.Parallel()
	a := startWorkloads(t, nil)
	client := dialSDS(t, a.socket)
	ctx := withDeadline(t)
	if _, err := fetchOwn(ctx, client, tokenFor("web", tokenSecret, time.Hour, 0)); err != nil {
		t.Fatal(err)
	}
	forged := tokenFor("web", "something else", time.Hour, 0)
	for range 3 {
		if _, err := fetchOwn(ctx, client, forged); status.Code(err) != codes.Unauthenticated || strings.Contains(err.Error(), forged) {
			t.Errorf("a forged token: %v", err)
		}
	}
	stream, err := openStream(withToken(ctx, forged), client)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.subscribe("default", "ROOTCA"); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stream with a forged token: %v, %v", got, err)
	}
	if n := a.workloads(t); n["requests"] != 2.0 || n["refused"] != 1.0 {
		t.Errorf("the status shows %v", n)
	}
	if strings.Contains(a.log.String(), forged) {
		t.Error("the log has the token")
	}
}

// crafted is one try of db to get what is web's.
type crafted struct {
	names    []string
	node     string
	metadata []string
}

// craft makes the try of that number: of names, tokens, node ids and metadata, each
// wrong in its own way.
func craft(i int, own, victim string) crafted {
	web := "spiffe://" + trustDomain + "/web"
	names := []string{
		"default", web, "web", "default/web", "default~" + web, "default\x00web", "DEFAULT", " default", "default ", "../web/default", "web/default",
		"file-cert:/proc/self/mem~/proc/self/mem", "file-root:/etc/passwd", "kubernetes://web", "*", "", "default?id=web", "default#web", "ROOTCA",
		"Default", "default,web", "{\"name\":\"web\"}", strings.Repeat("default", 1000), "default;web", "%64efault", "web\n", "secret:web",
		"ALL", "spiffe://" + trustDomain, web + "/", "spiffe://" + trustDomain + "/db",
	}
	nodes := []string{"", "web", web, "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local", "default", strings.Repeat("w", 1000)}
	parts := strings.Split(victim, ".")
	middle := func(claims string) string { return base64.RawURLEncoding.EncodeToString([]byte(claims)) }
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	tokens := []string{
		own, own, own, own, // most are db's own
		parts[0] + "." + parts[1] + ".", parts[0] + "." + parts[1] + "." + strings.Split(own, ".")[2], strings.Split(own, ".")[0] + "." + parts[1] + "." + strings.Split(own, ".")[2],
		none + "." + parts[1] + ".", none + "." + middle(fmt.Sprintf(`{"sub":"web","n":%d}`, i)) + ".x",
		parts[0] + "." + middle(fmt.Sprintf(`{"sub":"web","exp":99999999999,"n":%d}`, i)) + "." + parts[2],
		tokenFor("web", "guess", time.Hour, i), tokenFor("../web", "guess", time.Hour, i), tokenFor("db/../web", tokenSecret, time.Hour, i),
		tokenFor("web", tokenSecret, -time.Hour, i), own + victim[:20], "web", victim[:len(victim)-4] + fmt.Sprintf("%04d", i%10_000), strings.ToUpper(victim),
	}
	token := tokens[i%len(tokens)]
	more := [][]string{
		{}, {"x-forwarded-client-cert", "URI=" + web}, {"x-spiffe-id", web}, {"istio_sds_credentials_header-bin", token}, {"session", "1"}, {":authority", "web"},
		{"authorization", "Bearer " + own}, {"istio_sds_credentials_header-bin", own}, {"clusterid", "web"}, {"node-id", web}, {"x-session", fmt.Sprint(i)},
	}
	c := crafted{
		names: []string{names[i%len(names)], names[i/7%len(names)], names[i/3%2*i%len(names)]}, node: nodes[i%len(nodes)],
		metadata: append([]string{"authorization", "Bearer " + token}, more[i%len(more)]...),
	}
	if i%17 == 0 {
		c.metadata = more[i%len(more)] // no token at all, or elsewhere
	}
	return c
}

// Two identities cannot get each other's secret by anything that a client can say.
func TestClaimsDoNotGiveSecretsOfOthers(t *testing.T) {
	t.Parallel()
	a := startWorkloads(t, map[string]any{"workloads": map[string]any{"limits": map[string]any{"refused_tokens": 10_000}}})
	client := dialSDS(t, a.socket)
	ctx := withDeadline(t)
	victim, own := tokenFor("web", tokenSecret, time.Hour, 1), tokenFor("db", tokenSecret, time.Hour, 2)
	webs, err := fetchOwn(ctx, client, victim)
	if err != nil {
		t.Fatal(err)
	}
	key := webs.GetTlsCertificate().GetPrivateKey().GetInlineBytes()
	answered, refused := 0, 0
	const domain = "spiffe://" + trustDomain
	for i := range 1000 {
		c := craft(i, own, victim)
		short, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, c.metadata...), patience)
		answer, err := client.FetchSecrets(short, &discoveryv3.DiscoveryRequest{
			TypeUrl: secretType, ResourceNames: c.names, Node: &corev3.Node{Id: c.node, Cluster: "web"},
		})
		cancel()
		if err != nil {
			refused++
			if strings.Contains(err.Error(), string(key)) || status.Code(err) == codes.DeadlineExceeded {
				t.Errorf("try %d (%q): %v", i, c.names, err)
			}
			continue
		}
		answered++
		secrets, err := secretsOf(answer)
		if err != nil {
			t.Fatal(err)
		}
		for name, secret := range secrets {
			is, err := workloadOf(secret)
			mine := slices.Contains([]string{"default", domain + "/db"}, name)
			if mine && (err != nil || is != "db") || !mine && !slices.Contains([]string{"ROOTCA", domain, "ALL"}, name) || strings.Contains(secret.String(), string(key)) {
				t.Fatalf("try %d (%q, node %q) got %q of %q (%v)", i, c.names, c.node, name, is, err)
			}
		}
	}
	if answered < 100 || refused < 200 {
		t.Errorf("%d tries were answered with db's own, %d refused: that is no test", answered, refused)
	}
	again, err := fetchOwn(ctx, client, victim)
	if err != nil || again.String() != webs.String() {
		t.Errorf("web noticed something: %v", err)
	}
}

func TestHundredsOfStreamsRotateSeparately(t *testing.T) {
	t.Parallel()
	const identities, each, rotations = 50, 4, 3
	// The moment of a rotation is a second after the certificate came, at the earliest.
	a := startWorkloads(t, map[string]any{"ttl": "40s", "rotation": map[string]any{"ratio": 0.975, "jitter": 0.0025}})
	client := dialSDS(t, a.socket)
	ctx, cancel := context.WithCancel(withDeadline(t))
	defer cancel()
	var all sync.WaitGroup
	failed := make(chan error, identities*each)
	var mu sync.Mutex
	seen := map[string]string{} // whose each certificate is
	for i := range identities {
		name := fmt.Sprintf("w%d", i)
		// Made here: a token that is made a second later is another.
		tokens := [...]string{tokenFor(name, tokenSecret, time.Hour, 0), tokenFor(name, tokenSecret, time.Hour, 1)}
		for s := range each {
			all.Go(func() {
				got := func(chain string) error {
					mu.Lock()
					defer mu.Unlock()
					if other, ok := seen[chain]; ok && other != name {
						return fmt.Errorf("%s has a certificate of %s", name, other)
					}
					seen[chain] = name
					return nil
				}
				if err := follow(ctx, client, tokens[s%2], name, rotations, got); err != nil {
					failed <- fmt.Errorf("%s, stream %d: %w", name, s, err)
				}
			})
		}
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	n := a.workloads(t)
	// One request for each rotation, and one more for each further token, whose
	// certificate is the rotation where one is due just then.
	number := func(name string) float64 { f, _ := n[name].(float64); return f }
	if number("joins") > identities || number("requests") != number("rotations")+number("joins")+number("in_flight") || number("failures") != 0 {
		t.Errorf("the status shows %v", n)
	}
}

// follow takes certificates of one stream until it has had so many, each its owner's.
func follow(ctx context.Context, client secretv3.SecretDiscoveryServiceClient, token, name string, rotations int, got func(chain string) error) error {
	stream, err := openStream(withToken(ctx, token), client)
	if err != nil {
		return err
	}
	if err := stream.subscribe("default"); err != nil {
		return err
	}
	last := ""
	for n := 0; n <= rotations; {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		secrets, err := secretsOf(answer)
		if err != nil {
			return err
		}
		is, err := workloadOf(secrets["default"])
		if err != nil || is != name {
			return fmt.Errorf("it has the certificate of %q (%w)", is, err)
		}
		chain := string(secrets["default"].GetTlsCertificate().GetCertificateChain().GetInlineBytes())
		if chain == last {
			return errors.New("it was sent what it had")
		}
		if last, n = chain, n+1; got(chain) != nil {
			return got(chain)
		}
		if err := stream.ack(answer, "default"); err != nil {
			return err
		}
	}
	return nil
}
