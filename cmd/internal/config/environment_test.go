package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

var identity = []string{"POD_NAMESPACE=demo", "SERVICE_ACCOUNT=web", "COUNTERSIGN_DEV=true"}

// citadel returns the one entry that the variables make.
func citadel(t *testing.T, environ ...string) Provider {
	t.Helper()
	c, warnings := mustLoad(t, "", append(environ, identity...))
	if len(c.Providers) != 1 || c.Providers[0].Name != "citadel" || c.Providers[0].Provider != "citadel" || c.Secrets[0].Provider != "citadel" || len(warnings) > 0 {
		t.Fatalf("%v: providers are %+v, warnings %q", environ, c.Providers, warnings)
	}
	return c.Providers[0]
}

func TestIstioCAVariablesBecomeProviderSettings(t *testing.T) {
	entry := citadel(t, "CA_ADDR=istiod:15012", "ISTIOD_SAN=ca.mesh", "ISTIO_META_CLUSTER_ID=1", "ISTIO_META_CERT_SIGNER=true", "JWT_POLICY=first-party-jwt",
		"CA_HEADER_x-tenant=blue: yes", "CA_HEADER_KEY=2")
	want := map[string]any{
		"server_name": "ca.mesh", "cluster_id": "1", "cert_signer": "true",
		"headers": map[string]any{"x-tenant": "blue: yes", "KEY": "2"},
	}
	if entry.Address != "istiod:15012" || !reflect.DeepEqual(entry.Settings, want) || entry.Token.File != "/var/run/secrets/kubernetes.io/serviceaccount/token" {
		t.Errorf("got %+v with the token in %s", entry.Settings, entry.Token.File)
	}
}

func TestMountedCertificateMakesTokenOptional(t *testing.T) {
	entry := citadel(t, "CA_ADDR=istiod:15012", "PROV_CERT=/etc/prov")
	want := map[string]any{
		"client_cert_file": "/etc/prov/cert-chain.pem", "client_key_file": "/etc/prov/key.pem", "root_file": "/etc/prov/root-cert.pem",
	}
	if !reflect.DeepEqual(entry.Settings, want) || !entry.Token.Optional {
		t.Errorf("got %+v, token optional: %t", entry.Settings, entry.Token.Optional)
	}
}

func TestFirstIstioRuleGivesConnectionRoot(t *testing.T) {
	for environ, want := range map[string]any{
		"":                                  nil,
		"PILOT_CERT_PROVIDER=istiod":        nil,
		"PILOT_CERT_PROVIDER=k8s.io/signer": nil,
		"CA_ROOT_CA=SYSTEM PILOT_CERT_PROVIDER=custom":           "SYSTEM",
		"CA_ROOT_CA=/ca.pem PROV_CERT=/p":                        "/ca.pem",
		"CA_ROOT_CA=/ca.pem PILOT_CERT_PROVIDER=none":            "/ca.pem",
		"PILOT_CERT_PROVIDER=custom PROV_CERT=/p":                "./etc/certs/root-cert.pem",
		"PILOT_CERT_PROVIDER=kubernetes PROV_CERT=/p":            "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
		"PILOT_CERT_PROVIDER=none PROV_CERT=/p":                  "/p/root-cert.pem",
		"PILOT_CERT_PROVIDER=none CA_ADDR=istiod.mesh.svc:15010": nil,
	} {
		entry := citadel(t, append([]string{"CA_PROVIDER=Citadel"}, strings.Fields(environ)...)...)
		if got := entry.Settings["root_file"]; got != want {
			t.Errorf("%s: the root is %v, want %v", environ, got, want)
		}
	}
}

func TestFileEntryKeepsSettingsUnsetByVariables(t *testing.T) {
	file := "providers: [{name: citadel, sha256: " + pin + ", token: {file: /run/token}, settings: {server_name: x, cluster_id: file}}]"
	c, _ := mustLoad(t, file, append([]string{"CA_ADDR=istiod:15012", "ISTIO_META_CLUSTER_ID=variable"}, identity...))
	got := c.Providers[0]
	want := map[string]any{"server_name": "x", "cluster_id": "variable"}
	if len(c.Providers) != 1 || got.SHA256 != pin || got.Address != "istiod:15012" || got.Token.File != "/run/token" || !reflect.DeepEqual(got.Settings, want) {
		t.Errorf("got %+v", got)
	}
}

func TestIstioVariablesAreHonoured(t *testing.T) {
	for _, test := range []struct {
		environ string
		got     func(Config) any
		want    any
	}{
		{"TRUST_DOMAIN=example.org", func(c Config) any { return c.Secrets[0].SPIFFEID }, "spiffe://example.org/ns/demo/sa/web"},
		{"SECRET_GRACE_PERIOD_RATIO=0.25", func(c Config) any { return c.Rotation.Ratio }, 0.25},
		{"SECRET_GRACE_PERIOD_RATIO_JITTER=0", func(c Config) any { return c.Rotation.Jitter }, 0.0},
		{"WORKLOAD_RSA_KEY_SIZE=4096", func(c Config) any { return c.KeyType }, "rsa-4096"},
		{"WORKLOAD_RSA_KEY_SIZE=4096 ECC_SIGNATURE_ALGORITHM=ECDSA", func(c Config) any { return c.KeyType }, "ecdsa-p256"},
		{"ECC_SIGNATURE_ALGORITHM=ECDSA ECC_CURVE=P384", func(c Config) any { return c.KeyType }, "ecdsa-p384"},
		{"ECC_CURVE=P256", func(c Config) any { return c.KeyType }, "ecdsa-p256"},
		{"WORKLOAD_IDENTITY_SOCKET_FILE=sds.sock", func(c Config) any { return c.Socket.Path }, "./var/run/secrets/workload-spiffe-uds/sds.sock"},
		{"FILE_MOUNTED_CERTS=0 PKCS8_KEY=1 CREDENTIAL_FETCHER_TYPE=JWT", func(c Config) any { return len(c.Secrets) }, 2},
		{"FILE_DEBOUNCE_DURATION=1s", func(c Config) any { return c.Files.Debounce.Duration }, time.Second},
		{"OUTPUT_CERTS=/out/", func(c Config) any { return c.Outputs[0].Folder }, "/out"},
		{"FILE_MOUNTED_CERTS=true", func(c Config) any { return len(c.Providers) + len(c.Secrets) }, 0},
	} {
		c, warnings := mustLoad(t, "providers: [{name: file}]", append(strings.Fields(test.environ), identity...))
		if got := test.got(c); got != test.want {
			t.Errorf("%s: got %v, want %v", test.environ, got, test.want)
		}
		if ignored := strings.Contains(test.environ, "RSA") && strings.Contains(test.environ, "ECC"); (len(warnings) > 0) != ignored {
			t.Errorf("%s: warnings are %q", test.environ, warnings)
		}
	}
}

func TestNoIstioVariableIsIgnoredSilently(t *testing.T) {
	warned := []string{
		"PILOT_CERT_PROVIDER=istiod", "CA_ROOT_CA=SYSTEM", "ISTIOD_SAN=x", "ISTIO_META_CLUSTER_ID=c", "ISTIO_META_CERT_SIGNER=s",
		"JWT_POLICY=first-party-jwt", "CA_HEADER_X=y", "PKCS8_KEY=false",
		"SECRET_GRACE_DURATION=1h", "SECRET_JOB_RUN_INTERVAL=1m", "STALED_CONNECTION_RECYCLE_RUN_INTERVAL=5m", "INITIAL_BACKOFF_MSEC=10",
	}
	for _, entry := range warned {
		name, _, _ := strings.Cut(entry, "=")
		_, warnings := mustLoad(t, "providers: [{name: file}]", append([]string{entry}, identity...))
		if len(warnings) != 1 || !strings.HasPrefix(warnings[0], name+" has no effect: ") {
			t.Errorf("%s: warnings are %q", entry, warnings)
		}
	}
	for _, entry := range []string{"PROV_CERT=/certs", "CREDENTIAL_FETCHER_TYPE=GoogleComputeEngine"} {
		name, value, _ := strings.Cut(entry, "=")
		_, _, err := load("providers: [{name: file}]", append([]string{entry}, identity...))
		wantError(t, err, name+` is "`+value+`": `)
	}
}

func TestWrongVariablesAreOneSentenceEach(t *testing.T) {
	for entry, want := range map[string]string{
		"CA_ADDR=istiod:15012 JWT_POLICY=x":     `JWT_POLICY is "x": must be third-party-jwt or first-party-jwt`,
		"CA_ADDR=i:1 PILOT_CERT_PROVIDER=x":     `PILOT_CERT_PROVIDER is "x": must be istiod, kubernetes, custom, none or k8s.io/SIGNER`,
		"CA_ADDR=i:1 PILOT_CERT_PROVIDER=none":  `PILOT_CERT_PROVIDER is "none": a root is required to verify istiod's certificate; set CA_ROOT_CA`,
		"WORKLOAD_RSA_KEY_SIZE=1024":            `WORKLOAD_RSA_KEY_SIZE is "1024": must be 2048, 3072 or 4096`,
		"ECC_SIGNATURE_ALGORITHM=DSA":           `ECC_SIGNATURE_ALGORITHM is "DSA": must be ECDSA`,
		"PKCS8_KEY=maybe":                       `PKCS8_KEY is "maybe": must be true`,
		"FILE_MOUNTED_CERTS=maybe":              `FILE_MOUNTED_CERTS is "maybe": must be true or false`,
		"FILE_MOUNTED_CERTS=true PROV_CERT=/p":  `FILE_MOUNTED_CERTS is "true": without a CA there is nothing to present PROV_CERT to`,
		"PILOT_CERT_PROVIDER=k8s.io/":           `PILOT_CERT_PROVIDER is "k8s.io/": must be istiod`,
		"PILOT_CERT_PROVIDER=Istiod":            `PILOT_CERT_PROVIDER is "Istiod": must be istiod`,
		"WORKLOAD_IDENTITY_SOCKET_FILE=..":      `WORKLOAD_IDENTITY_SOCKET_FILE is "..": must be a file name`,
		"ECC_CURVE=P521":                        `ECC_CURVE is "P521": must be P256 or P384`,
		"SECRET_TTL=1d":                         `SECRET_TTL: ttl is "1d": write a number with a unit`,
		"SECRET_GRACE_PERIOD_RATIO=2":           `rotation.ratio is 2 (from SECRET_GRACE_PERIOD_RATIO)`,
		"WORKLOAD_IDENTITY_SOCKET_FILE=a/b":     `WORKLOAD_IDENTITY_SOCKET_FILE is "a/b": must be a file name without a folder`,
		"COUNTERSIGN_SOKET=x":                   `unknown variable COUNTERSIGN_SOKET: did you mean COUNTERSIGN_SOCKET?`,
		"COUNTERSIGN_ALLES_ANDERE=x":            `unknown variable COUNTERSIGN_ALLES_ANDERE: unset it`,
		"COUNTERSIGN_LOG_LEVEL=loud":            `log.level is "loud" (from COUNTERSIGN_LOG_LEVEL)`,
		"COUNTERSIGN_STATUS_ADDRESS=10.0.0.1:1": `status.address is "10.0.0.1:1" (from COUNTERSIGN_STATUS_ADDRESS)`,
	} {
		_, _, err := load("providers: [{name: file}]", append(strings.Fields(entry), identity...))
		wantError(t, err, want)
	}
}

func TestOtherVariablesWithOurPrefixAreAllowed(t *testing.T) {
	mustLoad(t, working, []string{
		"COUNTERSIGN_CONFIG=x", "COUNTERSIGN_PROVIDER_PATH=/p", "COUNTERSIGN_PROVIDER=cookie", "COUNTERSIGN_BINARY=/p/countersign-provider-x", "COUNTERSIGN_LIFELINE_FD=3", "COUNTERSIGN_CHANNEL_FD=4",
	})
}

func FuzzReadNeverPanics(f *testing.F) {
	f.Add([]byte(working), "socket.mode", "0600")
	f.Add([]byte("providers: [{settings: {a: [1, {b: c}]}, env: {A: b}}]"), "providers.x.settings.a.b", "[1")
	f.Add([]byte("? [a]\n: b"), "secrets..name", "")
	f.Fuzz(func(_ *testing.T, file []byte, path, value string) {
		_, _, _ = load(string(file), nil, Assignment{path, value, "--set"})
	})
}
