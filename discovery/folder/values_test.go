package folder

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

func TestYAMLScalarsBecomeProtobufJSON(t *testing.T) {
	for text, want := range map[string]string{
		".nan": `"NaN"`, ".inf": `"Infinity"`, "-.inf": `"-Infinity"`, "1.5": "1.5", "1e3": "1000", "0x10": "16", "-3": "-3", "12345678901234567890": "12345678901234567000",
		"2001-01-01": `"2001-01-01"`, "2001-01-01T00:00:00Z": `"2001-01-01T00:00:00Z"`, "!!binary aGk=": `"aGk="`, "5s": `"5s"`, "1e400": `"1e400"`,
		"~": "null", "null": "null", "true": "true", "'true'": `"true"`, "'1'": `"1"`, "!!str 1": `"1"`, "yes": `"yes"`, "": "null",
	} {
		f, err := parse([]byte(cluster + "metadata: {filter_metadata: {a: {b: " + text + "}}}"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		c := &clusterv3.Cluster{}
		if err := f.resources[key{ClusterURL, "web"}].Body.UnmarshalTo(c); err != nil {
			t.Fatal(err)
		}
		got, err := protojson.Marshal(c.Metadata.FilterMetadata["a"].Fields["b"])
		if err != nil && !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "-.") || err == nil && string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

const pemKey = "-----BEGIN PRIVATE KEY-----\\nMIGHAgEAMBMGByqGSM49\\n-----END PRIVATE KEY-----\\n"

// A key that stands in the wrong place, or in the wrong form, is in no status.
func TestReasonsShowNoKeyOrPassword(t *testing.T) {
	tls := cluster + `transport_socket: {name: tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
  common_tls_context: {tls_certificates: [{%s}]}}}`
	const place = "document 1, transport_socket.typed_config.common_tls_context.tls_certificates[0]."
	for content, want := range map[string]string{
		fmt.Sprintf(tls, `private_key: {inline_bytes: "`+pemKey+`"}`):       place + "private_key: not in the format Envoy expects; the content is secret and not shown",
		fmt.Sprintf(tls, `private_key: {inline_bytes: "MIGHAgEAMB?"}`):      place + "private_key: not in the format Envoy expects",
		fmt.Sprintf(tls, `private_key: "MIGHAgEAMB"`):                       place + "private_key: not in the format Envoy expects",
		fmt.Sprintf(tls, `password: {inline_bytes: "MIGHAgEAMB?"}`):         place + "password: not in the format Envoy expects",
		fmt.Sprintf(tls, `certificate_chain: {inline_bytes: "`+pemKey+`"}`): place + "certificate_chain.inline_bytes: (a private key, which is not shown)",
		fmt.Sprintf(tls, `certificate_chain: "`+pemKey+`"`):                 place + `certificate_chain: unexpected "(a private key, which is not shown)"; write the fields of DataSource`,
		`"` + pemKey + `"`:              `document 1: unexpected "(a private key, which is not shown)"`,
		`resources: ["` + pemKey + `"]`: `document 1, resources[0]: unexpected "(a private key, which is not shown)"`,
	} {
		_, err := parse([]byte(content))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "MIGH") {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

func TestReasonIsOneShortLine(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, content := range map[string]string{
		"text":       long,
		"a name":     named(long),
		"a value":    cluster + "type: " + long,
		"a key":      cluster + long[:1000] + ": 1",
		"a tag":      cluster + "alt_stat_name: !" + long + " a",
		"lines":      cluster + "\"a\\nb\": 1",
		"a name ago": strings.Repeat(named(long[:4000])+"---\n", 2),
		"a type":     "\"@type\": type.googleapis.com/" + long,
		"host":       "hosts: {\"" + long[:1000] + "\": {ips: [10.0.0.1]}}",
		"address":    "hosts: {a: {ips: [\"" + long + "\"]}}",
		"no YAML":    "a: *" + long,
	} {
		if _, err := parse([]byte(content)); err == nil || len(err.Error()) > 700 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %d bytes: %v", name, len(err.Error()), err)
		}
	}
}
