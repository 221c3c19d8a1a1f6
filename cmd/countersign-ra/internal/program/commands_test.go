package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPolicyTestDecidesByItsExitCode(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(usual, "{kinds: [pod]}", "{kinds: [pod], namespaces: [shop], clusters: [Kubernetes, east]}")
	conf := filepath.Join(files(t, nil, text), "c.yaml")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--namespace shop --service-account web --pod web-0":                                 {0, "granted: spiffe://cluster.local/ns/shop/sa/web\nby authority \"file\", for 24h0m0s at most\n"},
		"--namespace shop --service-account web --pod web-0 --cluster east":                  {0, "granted: "},
		"--namespace shop --service-account web --pod web-0 --cluster west":                  {1, `it is for the cluster ["Kubernetes" "east"], not "west"`},
		"--namespace bank --service-account web --pod web-0":                                 {1, "denied: no rule matches"},
		"--namespace shop --service-account we/b --pod web-0":                                {1, `the serviceAccount "we/b" cannot stand in`},
		"--namespace shop --service-account web":                                             {2, `enabled are pod-certificates/example.com/mesh`},
		"--kind pod":                                                                         {1, "denied: "},
		"--kind job":                                                                         {2, `--kind is "job": pod, service_account, node, user or namespace is allowed`},
		"--namespace shop --service-account web --pod web-0 --signer a.b/c":                  {2, `--signer and --requests are "a.b/c" and "pod-certificates": enabled are`},
		"--namespace shop --service-account web --pod web-0 --requests certificate-requests": {2, "enabled are"},
		"--nonsense": {2, "unknown flag"},
	} {
		out, errs, code := says(t, nil, append([]string{"policy", "test", "--config", conf}, strings.Fields(args)...)...)
		if code != want.code || !strings.Contains(out+errs, want.says) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s%s", args, code, want.code, want.says, out, errs)
		}
	}
}

func TestPolicyTestTriesTheRulesOfAMesh(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll(forMesh, "rules:", "rules:\n- name: fast\n  match: {requests: [istio], cert_signers: [fast]}\n  names: {spiffe_id: 'spiffe://cluster.local/fast'}")
	conf := filepath.Join(files(t, nil, text), "c.yaml")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--namespace shop --service-account web":                                         {0, "granted: spiffe://cluster.local/ns/shop/sa/web\n"},
		"--namespace shop --service-account web --cluster east":                          {0, "granted: spiffe://east.local/ns/shop/sa/web\n"},
		"--namespace shop --service-account web --cluster west":                          {1, "denied: no rule matches"},
		"--namespace shop --service-account web --cert-signer fast":                      {0, "granted: spiffe://cluster.local/fast\n"},
		"--namespace shop --service-account web --cert-signer slow":                      {2, `--cert-signer is "slow": enabled are istio, istio/fast`},
		"--namespace shop --service-account web --signer a.b/c":                          {2, `--signer and --requests are "a.b/c" and "": enabled are istio, istio/fast`},
		"--namespace shop --service-account web --requests pod-certificates":             {2, "enabled are istio, istio/fast"},
		"--namespace shop --service-account web --requests istio --kind service_account": {0, "granted: "},
	} {
		out, errs, code := says(t, nil, append([]string{"policy", "test", "--config", conf}, strings.Fields(args)...)...)
		if code != want.code || !strings.Contains(out+errs, want.says) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s%s", args, code, want.code, want.says, out, errs)
		}
	}
}

func TestValidateNamesWhatIsWrongOrMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		says string
		code int
	}{
		"what works":         {usual, "is valid", 0},
		"all doors":          {strings.ReplaceAll(usual, "  pod_certificates", "  certificate_requests: {enabled: true}\n  pod_certificates"), "is valid", 0},
		"no remotes":         {usual + "remotes: {folder: /none}\n", "note: remotes.folder: ", 0},
		"no trust bundle":    {strings.ReplaceAll(usual, "  trust_bundle", "#"), "note: signers: no trust_bundle has the roots of file", 0},
		"a lone replica":     {strings.ReplaceAll(usual, "{duration: 5s}", "{enabled: false}"), "note: leader_election.enabled is false", 0},
		"no kubeconfig":      {strings.ReplaceAll(usual, "DIR/kube.yaml", "DIR/none"), "cluster.kubeconfig is ", 2},
		"a kubeconfig's own": {strings.ReplaceAll(usual, "DIR/kube.yaml", "DIR/c.yaml"), "cluster.kubeconfig is ", 2},
		"no audit folder":    {strings.ReplaceAll(usual, "DIR/audit.log", "DIR/none/audit.log"), "audit.file is ", 2},
		"an audit folder":    {strings.ReplaceAll(usual, "DIR/audit.log", "DIR"), "that is a folder", 2},
		"no provider":        {strings.ReplaceAll(usual, "{name: file,", "{name: none,"), "none", 2},
		"no pin":             {strings.ReplaceAll(usual, "dev: true", "dev: false"), "providers.file.sha256 is not set", 2},
		"no runtime folder":  {usual + "runtime_dir: /none\n", `runtime_dir is "/none": `, 2},
		"renewals too short": {strings.ReplaceAll(strings.ReplaceAll(forRenewals, "longest: 72h", "longest: 24h"), "remotes: {folder: DIR/remotes}", ""), "note: istio.renewals.longest is 24h0m0s: certificates of rules.mesh may last as long", 0},
		"a mesh":             {strings.ReplaceAll(forMesh, "remotes: {folder: DIR/remotes}", ""), "note: authorities.file.roots.by_reply is false", 0},
		"a mesh's files":     {strings.ReplaceAll(forMesh, "{dns_names: [countersign-ra.countersign.svc]}", "{chain_file: /none/a, key_file: /none/b}"), "note: istio.certificate.chain_file: ", 0},
		"a mesh's names":     {strings.ReplaceAll(forMesh, "countersign-ra.countersign.svc", "'a b'"), "istio.certificate.dns_names: ", 2},
		"a mesh's issuer":    {strings.ReplaceAll(forMesh, "  listen:", "  issuers: [{issuer: 'http://issuer', cluster: vm}]\n  listen:"), "istio.issuers.0: ", 2},
		"a signer's name":    {strings.ReplaceAll(usual, "- name: example.com/mesh", "- name: kubernetes.io/x"), "is reserved for Kubernetes", 2},
	} {
		dir := files(t, newAPIServer(t), c.text)
		out, errs, code := says(t, environment(t), "config", "validate", "--config", filepath.Join(dir, "c.yaml"))
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s%s", name, code, c.code, c.says, out, errs)
		}
		if _, err := os.Stat(filepath.Join(dir, "audit.log")); err == nil {
			t.Errorf("%s: the audit log was made", name)
		}
	}
}

func TestServeRefusesWrongSettings(t *testing.T) {
	t.Parallel()
	dir := files(t, newAPIServer(t), strings.ReplaceAll(usual, "DIR/audit.log", "DIR/none/audit.log"))
	cmd := command(t.Context(), t, "serve", "--config", filepath.Join(dir, "c.yaml"))
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "audit.file is ") {
		t.Errorf("%v: %s", err, out)
	}
	if _, errs, code := says(t, nil, "serve"); code != 2 || !strings.Contains(errs, "--config is required") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestCommandsThatNeedNoService(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(files(t, nil, usual), "c.yaml")
	for args, want := range map[string]string{
		"config explain --config " + conf: "rules.pods.max_ttl", "config schema": "The configuration of countersign-ra", "version": "countersign-ra", "help": "policy",
	} {
		if out, errs, code := says(t, nil, strings.Fields(args)...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d\n%s%s", args, code, out, errs)
		}
	}
}

func TestPolicyTestSupportsCertManager(t *testing.T) {
	t.Parallel()
	text := usual + `
cert_manager: {authorities: [{name: file, cluster_issuers: true}]}
`
	text = strings.Replace(text, "rules:\n", "rules:\n- name: apps\n  match: {requests: [cert-manager], namespaces: [shop]}\n  names: {requested: [\"*.{namespace}.apps.example.org\"]}\n", 1)
	conf := filepath.Join(files(t, nil, text), "c.yaml")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--requests cert-manager --namespace shop":                   {0, "granted if asked for: *.{namespace}.apps.example.org\n"},
		"--kind namespace --namespace shop --authority file":         {0, "rule \"apps\" matches"},
		"--requests cert-manager --namespace bank":                   {1, "denied: no rule matches"},
		"--requests cert-manager":                                    {1, "needs its namespace"},
		"--requests cert-manager --namespace shop --authority other": {2, `--authority is "other"`},
	} {
		out, errs, code := says(t, nil, append([]string{"policy", "test", "--config", conf}, strings.Fields(args)...)...)
		if code != want.code || !strings.Contains(out+errs, want.says) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s%s", args, code, want.code, want.says, out, errs)
		}
	}
}
