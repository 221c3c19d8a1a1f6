//go:build e2e

package deploy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

var updateChart = flag.Bool("update", false, "write the golden files of the chart")

// chartExamples are the values in deploy/helm/examples, and the namespace that each is for.
var chartExamples = map[string]string{
	"discovery": "istio-system", "mesh": "countersign", "node": "countersign-node", "ra": "countersign", "sidecar": "shop",
}

// helm runs the program that operators have.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.Command(programs.Foreign(t, "COUNTERSIGN_HELM"), args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), linked.ReplaceAllString(errs.String(), ""), err
}

// linked is what Helm says of each symbolic link in a folder; a packaged chart has none.
var linked = regexp.MustCompile(`(?m)^level=INFO msg="found symbolic link in path\..*\n`)

// helmed fails the test where helm fails or warns.
func helmed(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := helm(t, args...)
	if err != nil || stderr != "" {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return stdout
}

func chart(t *testing.T) string { return programs.File(t, "deploy/helm/countersign") }

func chartValues(t *testing.T, example string) string {
	return programs.File(t, "deploy/helm/examples/"+example+".yaml")
}

// rendered is what an example makes, with further flags.
func rendered(t *testing.T, example string, flags ...string) string {
	t.Helper()
	args := []string{"template", "countersign", chart(t), "--namespace", chartExamples[example], "--kube-version", "1.37.1", "-f", chartValues(t, example)}
	return helmed(t, append(args, flags...)...)
}

// web is the example of a chart that has the sidecar, with our chart as it is packaged.
func web(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "web")
	must(t, os.CopyFS(folder, os.DirFS(programs.File(t, "deploy/helm/examples/web"))))
	helmed(t, "package", chart(t), "--destination", filepath.Join(folder, "charts"))
	return folder
}

func renderedWeb(t *testing.T, flags ...string) string {
	t.Helper()
	return helmed(t, append([]string{"template", "web", web(t), "--namespace", "shop"}, flags...)...)
}

func TestChartRendersGoldenFiles(t *testing.T) {
	for name, text := range map[string]string{
		"ra": rendered(t, "ra"), "discovery": rendered(t, "discovery"), "node": rendered(t, "node"), "web": renderedWeb(t),
	} {
		golden := programs.File(t, "deploy/helm/testdata/"+name+".yaml")
		if *updateChart {
			must(t, os.WriteFile(golden, []byte(text), 0o644)) //nolint:gosec // in git
		}
		want, err := os.ReadFile(golden)
		must(t, err)
		if text != string(want) {
			t.Errorf("%s differs from %s; look at what has changed with -args -update\n%s", name, golden, text)
		}
	}
}

func TestChartLints(t *testing.T) {
	for example, namespace := range chartExamples {
		helmed(t, "lint", "--strict", "--quiet", chart(t), "--namespace", namespace, "-f", chartValues(t, example))
	}
}

// The bases are the source: what the chart makes of them is what kustomize makes, but for labels,
// images and configuration.
func TestChartHasTheObjectsOfTheBases(t *testing.T) {
	const all = withRequests + "\n"
	everything := strings.Replace(all, "BASE/ra/istiod,", "BASE/ra/istiod, BASE/ra/cert-manager, BASE/ra/federation,", 1)
	const publishing = "config.publish_bundle.address=:8443"
	for name, row := range map[string]struct{ chart, kustomization string }{
		"ra":             {rendered(t, "ra"), "resources: [BASE/ra]"},
		"ra, everything": {rendered(t, "mesh", "--set", "ra.replicas=2,ra."+publishing, "--set-json", "ra.egressPorts=[]", "--set-json", "ra.config.signers[0].trust_bundle.bundle_endpoints=[]"), everything},
		"ra, rights":     {rendered(t, "ra", "--set", "ra.rightsOnly=true"), "resources: [BASE/ra/rights]"},
		"discovery":      {rendered(t, "discovery"), "resources: [BASE/discovery]"},
		"node":           {rendered(t, "node", nodeBroker...), "resources: [BASE/node]"},
		"discovery, bundle": {
			rendered(t, "discovery", "--set", "discovery."+publishing), "resources: [BASE/discovery]\ncomponents: [BASE/discovery/bundle-endpoint]",
		},
		"discovery, only": {rendered(t, "discovery", "--set", "discovery.rightsOnly=true"), "resources: [BASE/remote]"},
	} {
		got, want := comparable(t, row.chart), comparable(t, built(t, row.kustomization, nil))
		for key, object := range want {
			if !reflect.DeepEqual(got[key], object) {
				t.Errorf("%s: %s is\n%s\nand in the base\n%s", name, key, yamlOf(t, got[key]), yamlOf(t, object))
			}
		}
		for key := range got {
			if want[key] == nil {
				t.Errorf("%s: the base has no %s", name, key)
			}
		}
	}
}

// nodeBroker has the chart's agent of a node serve the broker of the base.
var nodeBroker = []string{"--set-json", `agent.config.broker={"spiffe_id":"spiffe://cluster.local/agent","brokers":[{"spiffe_id":"spiffe://cluster.local/ns/mesh/sa/proxy","references":["kubernetes"]}]}`}

// The chart composes the configuration of a node's agent, which the base has as a whole.
func TestChartConfiguresTheNodesAgentAsTheBase(t *testing.T) {
	var all []any
	for _, text := range []string{rendered(t, "node", nodeBroker...), built(t, "resources: [BASE/node]", nil)} {
		for _, o := range objects(t, text, "ConfigMap") {
			var m corev1.ConfigMap
			must(t, json.Unmarshal(o.text, &m))
			var config any
			must(t, yaml.Unmarshal([]byte(m.Data["countersign.yaml"]), &config))
			all = append(all, config)
		}
	}
	if len(all) != 2 || !reflect.DeepEqual(all[0], all[1]) {
		t.Errorf("they are\n%s", yamlOf(t, all))
	}
}

// comparable are all objects without ConfigMaps and the pods of helm test, by kind and name, and without what may differ.
func comparable(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, o := range objects(t, text, "") {
		if o.Kind == "ConfigMap" || o.Kind == "PodMonitor" || o.Kind == "Pod" {
			continue
		}
		hashed := regexp.MustCompile(`"(countersign-[a-z-]+)-[a-z0-9]{10}"`).ReplaceAll(o.text, []byte(`"$1"`))
		var object map[string]any
		must(t, json.Unmarshal(hashed, &object))
		metadata := object["metadata"].(map[string]any)
		delete(metadata, "labels")
		delete(metadata, "annotations")
		if strings.HasPrefix(o.Kind, "ValidatingAdmission") {
			delete(metadata, "namespace") // kustomize gives them one, and the API server drops it
		}
		if o.Kind == "Deployment" || o.Kind == "DaemonSet" {
			template := object["spec"].(map[string]any)["template"].(map[string]any)
			delete(template["metadata"].(map[string]any), "annotations")
			pod := template["spec"].(map[string]any)
			delete(pod, "nodeSelector")
			container := pod["containers"].([]any)[0].(map[string]any)
			delete(container, "image")
			delete(container, "imagePullPolicy")
			slices.SortFunc(container["ports"].([]any), func(a, b any) int { return strings.Compare(yamlOf(t, a), yamlOf(t, b)) })
		}
		all[o.Kind+" "+o.Metadata.Name] = object
	}
	return all
}

func yamlOf(t *testing.T, object any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	must(t, err)
	return string(text)
}

// Rights follow from the configuration.
func TestChartGrantsWhatTheConfigurationNeeds(t *testing.T) {
	for set, want := range map[string][]string{
		"ra.replicas=2": nil,
		"ra.config.signers[0].certificate_requests.enabled=true":                         {"certificatesigningrequests\n"},
		"ra.config.mesh.roots.enabled=true":                                              {"istio-ca-root-cert"},
		"ra.config.mesh.roots.enabled=true,ra.config.mesh.roots.as=cluster_trust_bundle": {"istio.io:istiod-ca:root-cert"},
		"ra.config.mesh.istiod.enabled=true":                                             {"istiod-tls"},
		"ra.config.remotes.secrets=true":                                                 {"name: countersign-ra-remotes\n"},
		"ra.config.publish_bundle.address=:9443":                                         {"- port: https-bundle\n", "containerPort: 9443\n", "port: 9443\n", "- countersign-ra-bundle\n"},
		"ra.config.istio.listen=:15012":                                                  {"tokenreviews", "port: grpc-ca\n", "kind: Service\n"},
		"ra.config.cert_manager.authorities[0].name=vault":                               {"- certificaterequests\n", "kind: CustomResourceDefinition"},
		"ra.config.signers[0].name=signers.example.org/other":                            {"in ['signers.example.org/other']", "- signers.example.org/other"},
		"ra.config.signers[0].trust_bundle.name=example.com:mesh:it":                     {"- example.com:mesh:it\n"},
		"ra.config.signers[0].trust_bundle.bundle_endpoints[0].trust_domain=b.example":   {"name: countersign-ra-federation\n", "oldObject.spec.signerName in ['example.com/mesh']", "request.name != 'istio.io:istiod-ca:root-cert'"},
	} {
		text := rendered(t, "ra", "--set", set)
		for _, s := range []string{
			"certificatesigningrequests\n", "istio-ca-root-cert", "istio.io:istiod-ca:root-cert", "istiod-tls", "name: countersign-ra-remotes\n", "tokenreviews", "port: grpc-ca\n", "- certificaterequests\n", "port: https-bundle\n",
			"kind: CustomResourceDefinition", "- signers.example.org/other", "- example.com:mesh:it\n", "name: countersign-ra-federation\n",
		} {
			if has, should := strings.Contains(text, s), strings.Contains(strings.Join(want, " "), s); has != should {
				t.Errorf("%s: %q is there: %t", set, s, has)
			}
		}
		for _, s := range want {
			if !strings.Contains(text, s) {
				t.Errorf("%s: %q is missing", set, s)
			}
		}
	}
}

func TestChartRefusesContradictions(t *testing.T) {
	for _, row := range []struct{ example, set, says string }{
		{"ra", "ra.enabled=false", "Nothing is enabled"},
		{"ra", "image.registry=", "image.registry is not set"},
		{"ra", "ra.config.providers=null", "ra.config.providers is not set"},
		{"ra", "ra.config.signers=null", "ra.config has nobody to serve"},
		{"ra", "ra.config.leader_election.enabled=false", "two would sign without a leader"},
		{"ra", "ra.config.leader_election.lease=mine", "'lease' not allowed"},
		{"ra", "ra.config.cluster.system_namespace=other", "the release is in countersign"},
		{"ra", "ra.config.status.probes=:8080", "another port than 15021"},
		{"mesh", "ra.config.istio.listen=:15010", "another port than 15012"},
		{"ra", "ra.replicas=two", "/ra/replicas"},
		{"ra", "ra.replica=1", "replica"},
		{"ra", "ra.replicas=null", "replicas"},
		{"ra", "ra.config=null", "config"},
		{"ra", "monitoring=null", "monitoring"},
		{"ra", "image.registry=registry.example.org/", "/image/registry"},
		{"ra", "registrationAuthority.enabled=true", "registrationAuthority"},
		{"discovery", "discovery.config.providers=null", "discovery.config.providers is not set"},
		{"discovery", "discovery.config.certificate=null", "/discovery/config/certificate"},
		{"discovery", "discovery.config.listen.tls=:443", "another port than 15012"},
		{"node", "agent.config.workloads=null", "/agent/config/workloads"},
		{"node", "agent.config.workloads.verified_by=", "/agent/config/workloads/verified_by"},
		{"node", "agent.config.providers=null", "set agent.config.providers, or CA_ADDR in agent.env"},
		{"node", "agent.config.socket.path=/tmp/socket", "agent.config.socket.path"},
		{"node", "agent.config.publish_bundle.address=:8443", "numbers of its own"},
		{"node", "agent.config.broker.spiffe_id=spiffe://cluster.local/agent,agent.brokerFolder=/run/countersign-agent", "agent.brokerFolder is in agent.socketFolder"},
		{"node", "agent.config.broker.spiffe_id=spiffe://cluster.local/agent,agent.brokerFolder=/run/countersign-agent/broker/", "agent.brokerFolder is in agent.socketFolder"},
		{"node", "agent.config.status.metrics_secret=default,monitoring.podMonitor.enabled=true", "write a PodMonitor with your scraper's TLS settings"},
		{"sidecar", "sidecar.config.providers=null", "set sidecar.config.providers, or CA_ADDR in sidecar.env"},
		{"sidecar", "sidecar.tokens[1].path=token", "audience"},
	} {
		stdout, stderr, err := helm(t, "template", chart(t), "--namespace", chartExamples[row.example], "-f", chartValues(t, row.example), "--set", row.set)
		if err == nil || !strings.Contains(stderr, row.says) {
			t.Errorf("%s: %v\n%s%s", row.set, err, stdout, stderr)
		}
	}
	rendered(t, "ra", "--set", "ra.replicas=1,ra.config.leader_election.enabled=false")
	rendered(t, "node", "--set", "agent.config.status.metrics_secret=default")
	rendered(t, "sidecar", "--set", "sidecar.config.providers=null,sidecar.env[0].name=CA_ADDR,sidecar.env[0].value=a:1")
}

// One wrong value is one line, and a value of a program's file counts as one of the chart's.
func TestChartNamesEachWrongValueOnce(t *testing.T) {
	wrong := map[string]string{
		"ra.replicas=two":                      "/ra/replicas",
		"ra.replica=1":                         "'replica' not allowed",
		"ra.config.isto.listen=:15012":         "'isto' not allowed",
		"ra.config.rules[0].max_ttl=day":       "/ra/config/rules/0/max_ttl",
		"ra.config.signers[0].name=mesh":       "/ra/config/signers/0/name",
		"ra.service.type=External":             "/ra/service/type",
		"ra.podLabels.team=1":                  "/ra/podLabels/team",
		"ra.probes.liveness.periodSeconds=0":   "/ra/probes/liveness/periodSeconds",
		"monitoring.podMonitor.interval=often": "/monitoring/podMonitor/interval",
		"image.pullPolicy=Sometimes":           "/image/pullPolicy",
		"discovery.config.resources.path=/x":   "'path' not allowed",
		"sidecar.podLabels.a=b":                "'podLabels' not allowed",
		"agent.config.socket.mod=0666":         "'mod' not allowed",
		"extraObjects[0].kind=ConfigMap":       "/extraObjects/0",
	}
	args := []string{"template", chart(t), "--namespace", "countersign", "-f", chartValues(t, "ra")}
	for set := range wrong {
		args = append(args, "--set", set)
	}
	_, stderr, err := helm(t, args...)
	if err == nil {
		t.Fatal("wrong values are taken")
	}
	var lines []string
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "- at '") && !strings.Contains(line, "validation failed") { // which begins a group
			lines = append(lines, line)
		}
	}
	for set, want := range wrong {
		if n := len(slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, want) })); n != 1 {
			t.Errorf("%s: %d lines name it", set, n)
		}
	}
	if len(lines) != len(wrong) {
		t.Errorf("%d lines for %d wrong values:\n%s", len(lines), len(wrong), stderr)
	}
}

// What concerns Kubernetes alone is in the values of each part.
func TestChartSetsWhatClustersDifferIn(t *testing.T) {
	text := rendered(t, "mesh", "--set", strings.Join([]string{
		"commonLabels.team=pki", "commonAnnotations.owner=pki", "image.pullSecrets[0]=mirror",
		`ra.serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:aws:iam::1:role/ra`, "ra.serviceAccount.labels.tier=ca",
		"ra.podLabels.zone=a", "ra.podAnnotations.scrape=yes", "ra.service.type=LoadBalancer", "ra.service.annotations.internal=yes",
		"ra.disruptionBudget.minAvailable=2", "ra.strategy.type=Recreate", "ra.probes.liveness.failureThreshold=12",
		"monitoring.podMonitor.enabled=true", "monitoring.podMonitor.interval=30s", "extraObjects[0].apiVersion=v1", "extraObjects[0].kind=Secret",
		"extraObjects[0].metadata.name=mine-extra",
	}, ","))
	for _, want := range []string{
		"eks.amazonaws.com/role-arn: arn:aws:iam::1:role/ra", "tier: ca", "zone: a", "scrape: \"yes\"", "type: LoadBalancer", "internal: \"yes\"",
		"minAvailable: 2", "type: Recreate", "failureThreshold: 12", "interval: 30s", "name: mine-extra", "- name: mirror",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(text, "maxUnavailable") {
		t.Error("the bases' budget or strategy is left beside the one of the values")
	}
	for _, o := range objects(t, text, "") {
		var m metav1.PartialObjectMetadata
		must(t, json.Unmarshal(o.text, &m))
		if !strings.HasSuffix(m.Name, "-extra") && (m.Labels["team"] != "pki" || m.Annotations["owner"] != "pki") {
			t.Errorf("%s %s has neither the common labels nor the common annotations", m.Kind, m.Name)
		}
	}
	for _, o := range objects(t, text, "Deployment") {
		var d appsv1.Deployment
		must(t, json.Unmarshal(o.text, &d))
		if got := d.Spec.Template.Labels["app"]; got != "countersign-ra" || d.Spec.Template.Annotations["checksum/config"] == "" {
			t.Errorf("the pod's own label is %q, its annotations %v", got, d.Spec.Template.Annotations)
		}
	}
}

// The Service of a bundle endpoint is for other meshes, and that of a CA is not.
func TestChartExposesTheBundleAlone(t *testing.T) {
	text := rendered(t, "mesh", "--set", "ra.config.publish_bundle.address=:8443,ra.bundleService.type=LoadBalancer")
	types := map[string]corev1.ServiceType{}
	for _, o := range objects(t, text, "Service") {
		var s corev1.Service
		must(t, json.Unmarshal(o.text, &s))
		types[s.Name] = s.Spec.Type
	}
	if want := map[string]corev1.ServiceType{"countersign-ra": "", "countersign-ra-bundle": corev1.ServiceTypeLoadBalancer}; !reflect.DeepEqual(types, want) {
		t.Errorf("the Services are %v, want %v", types, want)
	}
}

// The pod of another chart pulls the agent's image, too.
func TestChartNamesPullSecretsOfSidecars(t *testing.T) {
	text := renderedWeb(t, "--set", "countersign.image.pullSecrets[0]=mirror")
	var d appsv1.Deployment
	must(t, json.Unmarshal(objects(t, text, "Deployment")[0].text, &d))
	if got := d.Spec.Template.Spec.ImagePullSecrets; len(got) != 1 || got[0].Name != "mirror" {
		t.Errorf("the pull secrets are %v", got)
	}
}

// An upgrade that reuses the values of a chart from before these values has none of them.
func TestChartNeedsNoValuesThatCameLater(t *testing.T) {
	unset := "commonLabels=null,commonAnnotations=null,extraObjects=null,image.pullSecrets=null"
	for _, value := range []string{"serviceAccount", "podLabels", "podAnnotations", "service", "bundleService", "disruptionBudget", "strategy", "probes"} {
		unset += ",ra." + value + "=null"
	}
	if got, want := rendered(t, "mesh", "--set", unset), rendered(t, "mesh"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// helm test runs what validates the configuration, with what the workload mounts.
func TestChartTestsValidateTheConfiguration(t *testing.T) {
	for example, command := range map[string]string{
		"ra": "/usr/bin/countersign-ra config validate --config /etc/countersign/ra.yaml", "discovery": "/usr/bin/countersign-discovery config validate --config /etc/countersign/discovery.yaml",
		"node": "/usr/bin/countersign config validate --config /etc/countersign/countersign.yaml",
	} {
		pods := objects(t, rendered(t, example), "Pod")
		if len(pods) != 1 {
			t.Fatalf("%s: %d pods", example, len(pods))
		}
		var pod corev1.Pod
		must(t, json.Unmarshal(pods[0].text, &pod))
		container := pod.Spec.Containers[0]
		if got := strings.Join(append(container.Command, container.Args...), " "); got != command || pod.Annotations["helm.sh/hook"] != "test" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("%s: %s, %v", example, got, pod.Annotations)
		}
		if pod.Labels["app"] != "" || len(container.VolumeMounts) == 0 || container.LivenessProbe != nil {
			t.Errorf("%s: %v, %+v", example, pod.Labels, container)
		}
	}
}

// Alerts and dashboard are those of deploy/prometheus and deploy/grafana.
func TestChartHasAlertsAndDashboard(t *testing.T) {
	text := rendered(t, "ra", "--set", "monitoring.rules.enabled=true,monitoring.dashboard.enabled=true")
	var rules struct{ Spec any }
	must(t, json.Unmarshal(objects(t, text, "PrometheusRule")[0].text, &rules))
	file, err := os.ReadFile(programs.File(t, "deploy/prometheus/alerts.yaml"))
	must(t, err)
	var want any
	must(t, yaml.Unmarshal(file, &want))
	if !reflect.DeepEqual(rules.Spec, want) {
		t.Errorf("the rules are %s", yamlOf(t, rules.Spec))
	}
	dashboard, err := os.ReadFile(programs.File(t, "deploy/grafana/countersign.json"))
	must(t, err)
	for _, o := range objects(t, text, "ConfigMap") {
		var m corev1.ConfigMap
		must(t, json.Unmarshal(o.text, &m))
		if m.Data["countersign.json"] == string(dashboard) {
			return
		}
	}
	t.Error("no ConfigMap has the dashboard")
}

// An agent that tells its health and its metrics to others is asked for them.
func TestChartProbesTheAgentOfANode(t *testing.T) {
	for flags, port := range map[string]int32{"": 15020, "agent.config.status.metrics=:9090": 9090} {
		text := rendered(t, "node", "--set", "monitoring.podMonitor.enabled=true,"+flags)
		var d appsv1.DaemonSet
		must(t, json.Unmarshal(objects(t, text, "DaemonSet")[0].text, &d))
		container := d.Spec.Template.Spec.Containers[0]
		got := ""
		for _, port := range container.Ports {
			got += strings.TrimPrefix(port.Name, "http-") + " "
			if !strings.Contains(text, "- port: "+port.Name+"\n") {
				t.Errorf("%q: the NetworkPolicy closes %s", flags, port.Name)
			}
		}
		if len(objects(t, text, "PodMonitor")) == 1 {
			got += "monitored "
		}
		if got != "probes metrics monitored " || container.Ports[1].ContainerPort != port {
			t.Errorf("%q: %s, %v", flags, got, container.Ports)
		}
		if container.LivenessProbe == nil || container.ReadinessProbe == nil {
			t.Errorf("%q: it is not probed", flags)
		}
	}
}

// The programs take the files that the chart makes.
func TestChartsConfigurationIsValid(t *testing.T) {
	for example, program := range map[string][]string{
		"ra": {"countersign-ra", "config", "validate"}, "mesh": {"countersign-ra", "config", "validate"}, "discovery": {"countersign-discovery", "config", "validate"},
		"node": {"countersign", "config", "validate"}, "sidecar": {"countersign", "config", "validate", "--namespace", "shop", "--service-account", "web"},
	} {
		var flags, env []string
		if example == "node" {
			flags, env = nodeBroker, []string{"COUNTERSIGN_BROKER_NODE=here"}
		}
		for _, o := range objects(t, rendered(t, example, flags...), "ConfigMap") {
			var m corev1.ConfigMap
			must(t, json.Unmarshal(o.text, &m))
			folder := inThePod(t, m.Data)
			file := program[0] + ".yaml"
			if name, ok := strings.CutPrefix(program[0], "countersign-"); ok {
				file = name + ".yaml"
			}
			cmd := exec.Command(programs.Path(t, program[0]), append(program[1:], "--config", file)...)
			cmd.Dir = folder
			cmd.Env = append(env, "HOME="+folder)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s%s", example, err, out, m.Data[file])
			}
		}
	}
}

// inThePod writes files into a folder, with what they name of the image and the pod beside them.
func inThePod(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	here := strings.NewReplacer("/run/countersign\n", folder+"\n", "lock: /usr/lib/countersign/countersign.lock",
		"dev: true\nprovider_dirs: ["+programs.Folder(t, "countersign-provider-vault", "countersign-provider-citadel")+"]")
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(here.Replace(text)), 0o600))
	}
	istio := filepath.Join(folder, "var/run/secrets/istio")
	must(t, os.MkdirAll(istio, 0o700))
	must(t, os.WriteFile(filepath.Join(istio, "root-cert.pem"), []byte(root), 0o600))
	return folder
}

func TestRealAPIServerAcceptsChart(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	for _, namespace := range []string{"istio-system", "countersign", "countersign-node", "shop"} {
		restricted(t, c, namespace)
	}
	hasPrometheusOperator(t, c)
	for example, namespace := range chartExamples {
		text := rendered(t, example, "--set", "monitoring.podMonitor.enabled=true,monitoring.rules.enabled=true,monitoring.dashboard.enabled=true")
		if example == "node" {
			needsTheNode(t, c, text)
			continue
		}
		apply(t, c, text, "--dry-run=server")
		if example != "sidecar" {
			runsRestricted(t, c, text, namespace)
		}
	}
	text := renderedWeb(t)
	apply(t, c, text, "--dry-run=server")
	runsRestricted(t, c, text, "shop")
	runsChartPage(t, c)
}

// hasPrometheusOperator gives the API server the types of PodMonitors and PrometheusRules.
func hasPrometheusOperator(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	types, err := filepath.Glob(filepath.Join(programs.Foreign(t, "COUNTERSIGN_PROMETHEUS_OPERATOR"), "*.yaml"))
	must(t, err)
	for _, path := range types {
		text, err := os.ReadFile(path)
		must(t, err)
		apply(t, c, string(text))
	}
	soon(t, "the API server knows the types", func() error {
		list, err := c.Client().Discovery().ServerResourcesForGroupVersion("monitoring.coreos.com/v1")
		if err == nil && len(list.APIResources) < 2 {
			err = fmt.Errorf("it has %d", len(list.APIResources))
		}
		return err
	})
}

// runsChartPage runs the commands of docs/helm.md, and renders the values there.
func runsChartPage(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, c.AdminKubeconfig(), 0o600))
	commands, _ := docsPage(t, "helm.md", "")
	installed := 0
	for line := range strings.Lines(strings.Join(commands, "")) {
		if !strings.HasPrefix(line, "helm ") {
			continue
		}
		cmd := exec.Command("bash", "-c", line)
		cmd.Dir = programs.File(t, ".")
		cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + config, "PATH=" + filepath.Dir(programs.Foreign(t, "COUNTERSIGN_HELM"))}
		if out := done(t, cmd); !strings.Contains(out, "STATUS: deployed") {
			t.Errorf("%s%s", line, out)
		}
		installed++
	}
	values, _ := docsPage(t, "helm.md", "yaml")
	if installed != 3 || len(values) != 1 {
		t.Fatalf("the page has %d commands and %d values", installed, len(values))
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(file, []byte(values[0]), 0o600))
	if text := helmed(t, "template", chart(t), "--namespace", "countersign", "-f", file); !strings.Contains(text, "image: registry.example.org/countersign-ra:") {
		t.Error(text)
	}
}

// TestRealChartOfPushedRelease has the module tools/dist install what it pushed into a registry.
func TestRealChartOfPushedRelease(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, c.AdminKubeconfig(), 0o600))
	programs.Foreign(t, "COUNTERSIGN_HELM")
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-tags", "e2e,grpcnotrace", "-run", "TestChartOfRegistryInstalls", "-v", ".")
	cmd.Dir = programs.File(t, "tools/dist")
	cmd.Env = append(os.Environ(), "GOWORK=off", "KUBECONFIG="+config)
	if said := done(t, cmd); !strings.Contains(said, "--- PASS: TestChartOfRegistryInstalls") {
		t.Error(said)
	}
}

// needsTheNode holds that the agent of a node breaks the restricted standard only in what it needs:
// a folder of the node, and root, which owns it.
func needsTheNode(t *testing.T, c *kubetest.Cluster, text string) {
	t.Helper()
	c.Namespace("privileged")
	apply(t, c, strings.ReplaceAll(text, "namespace: countersign-node", "namespace: privileged"), "--dry-run=server")
	var d appsv1.DaemonSet
	must(t, json.Unmarshal(objects(t, text, "DaemonSet")[0].text, &d))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}, Spec: d.Spec.Template.Spec}
	_, err := c.Client().CoreV1().Pods("countersign-node").Create(t.Context(), pod, metav1.CreateOptions{DryRun: dry})
	if err == nil {
		t.Fatal("it is let in")
	}
	_, broken, _ := strings.Cut(err.Error(), `"restricted:latest": `)
	broken = regexp.MustCompile(` \([^)]*\)`).ReplaceAllString(broken, "")
	if broken != "restricted volume types, runAsNonRoot != true, runAsUser=0" {
		t.Errorf("it breaks %q: %v", broken, err)
	}
}

// An upgrade changes nothing that Kubernetes holds fixed, and a rollback restores what was.
func TestRealChartIsUpgradedAndRolledBack(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, c.AdminKubeconfig(), 0o600))
	c.Namespace("countersign")
	run := func(args ...string) string {
		t.Helper()
		return helmed(t, append(args, "--kubeconfig", config, "--namespace", "countersign")...)
	}
	deployment := func() *appsv1.Deployment {
		t.Helper()
		d, err := c.Client().AppsV1().Deployments("countersign").Get(t.Context(), "countersign-ra", metav1.GetOptions{})
		must(t, err)
		return d
	}
	run("install", "countersign", chart(t), "-f", chartValues(t, "ra"))
	first := deployment()
	run("upgrade", "countersign", chart(t), "-f", chartValues(t, "mesh"), "--set", "monitoring.podMonitor.enabled=false")
	second := deployment()
	if second.UID != first.UID || *second.Spec.Replicas != 3 || second.Spec.Template.Spec.Containers[0].Image != "registry.example.org/countersign/countersign-ra:1" {
		t.Errorf("after the upgrade: %+v", second.Spec)
	}
	if sum := "checksum/config"; second.Spec.Template.Annotations[sum] == first.Spec.Template.Annotations[sum] {
		t.Error("another configuration starts no new pods")
	}
	run("rollback", "countersign", "1")
	if third := deployment(); third.UID != first.UID || !reflect.DeepEqual(third.Spec, first.Spec) {
		t.Errorf("after the rollback it is %+v\nand was %+v", third.Spec, first.Spec)
	}
	// Issuers outlive a rollback and an uninstallation, and so do their types.
	run("uninstall", "countersign")
	crds := kubectl(t, "", "get", "crd", "--kubeconfig", config, "-o", "name")
	if strings.Count(crds, "countersign.dev") != 2 {
		t.Errorf("the types that are left: %q", crds)
	}
	left, err := c.Client().AppsV1().Deployments("countersign").List(t.Context(), metav1.ListOptions{})
	if must(t, err); len(left.Items) != 0 {
		t.Errorf("it left %d Deployments", len(left.Items))
	}
}

// The Broker API has a folder of its own on the node, and rights to look at pods if brokers refer to them.
func TestChartServesBrokers(t *testing.T) {
	const text = `agent.config.broker={"spiffe_id":"spiffe://cluster.local/agent","brokers":[{"spiffe_id":"spiffe://cluster.local/proxy","references":["%s"]}]}`
	for reference, pods := range map[string]bool{"kubernetes": true, "pid": false} {
		got := rendered(t, "node", "--set-json", fmt.Sprintf(text, reference))
		for s, want := range map[string]bool{
			"socket: /run/countersign-broker/socket": true, "mountPath: /run/countersign-broker": true, "path: /run/countersign-broker\n": true,
			"name: COUNTERSIGN_BROKER_NODE": pods, "fieldPath: spec.nodeName": pods, "- pods\n": pods,
		} {
			if strings.Contains(got, s) != want {
				t.Errorf("%s: %q is there: %t", reference, s, !want)
			}
		}
	}
	if got := rendered(t, "node", "--set-json", fmt.Sprintf(text, "kubernetes"), "--set", "agent.config.broker.node=*"); strings.Contains(got, "COUNTERSIGN_BROKER_NODE") {
		t.Error("a variable overrules the node of the configuration")
	}
	if got := rendered(t, "node"); strings.Contains(got, "broker") {
		t.Error("there is something of a broker that is not configured")
	}
}
