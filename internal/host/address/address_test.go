package address

import (
	"reflect"
	"strings"
	"testing"
)

const marked = `{"type":"object","properties":{
  "pool":{"type":"string","pattern":"^pools/[a-z]+$","x-countersign-address":"text"},
  "endpoint":{"type":["null","string"],"x-countersign-address":"host:port"},
  "url":{"type":"string"}, "address":{"type":"object","x-countersign-address":"url"}}}`

func TestSchemaMarksTheAddress(t *testing.T) {
	for schema, want := range map[string]Settings{
		"":                  {},
		`{"type":"object"}`: {},
		marked:              {{"endpoint", HostPort, ""}, {"pool", Text, "^pools/[a-z]+$"}},
		`{"properties":{"dir":{"type":"string","x-countersign-address":"path"}}}`:                    {{"dir", Path, ""}},
		`{"properties":{"at":{"type":"string","x-countersign-address":"of a newer version"}}}`:       {{"at", Text, ""}},
		`{"properties":{"at":{"type":"string","pattern":"(?=x)","x-countersign-address":"text"}}}`:   {{"at", Text, ""}},
		`{"properties":{"address":{"type":"string"},"url":{"type":"string","pattern":"^https://"}}}`: {{"url", URL, "^https://"}},
		`{"properties":{"address":{"type":"string"}}}`:                                               {{"address", Text, ""}},
		`{"properties":{"address":{"type":"string","format":"uri"}}}`:                                {{"address", URL, ""}},
		`{"properties":{"at":{"type":"string","writeOnly":true,"x-countersign-address":"text"}}}`:    {},
		`{"properties":{"at":{"type":"string","x-secret":true,"x-countersign-address":"text"}}}`:     {},
		`{"properties":{"url":{"type":"string","x-secret":true},"address":{"type":"string"}}}`:       {{"address", Text, ""}},
		`{"properties":{"url":{"type":"object"}}}`:                                                   {},
	} {
		if got, err := Of(schema); err != nil || got == nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v; want %v", schema, got, err, want)
		}
	}
	if _, err := Of(`{"properties":[]}`); err == nil {
		t.Error("a malformed schema is accepted")
	}
}

func TestAddressBecomesTheSettingThatItFits(t *testing.T) {
	google, _ := Of(marked)
	for _, test := range []struct {
		settings    Settings
		address     string
		name, value string
		refused     string
	}{
		{google, "pools/a", "pool", "pools/a", ""},
		{google, "ca.example:443", "endpoint", "ca.example:443", ""},
		{google, "pools/A", "", "", "write host:port, for the setting endpoint, or text that matches ^pools/[a-z]+$"},
		{Settings{{"url", URL, ""}}, "vault:8200/x", "url", "https://vault:8200/x", ""},
		{Settings{{"url", URL, ""}}, "http://vault:8200", "url", "http://vault:8200", ""},
		{Settings{{"url", URL, "^https://"}}, "http://u:geheim@vault", "", "", "write a URL, or HOST[:PORT][/PATH] for https, that matches ^https://"},
		{Settings{{"dir", Path, ""}}, "/etc/ca", "dir", "/etc/ca", ""},
		{Settings{{"dir", Path, ""}}, "etc/ca", "", "", "write an absolute path, for the setting dir"},
		{Settings{{"at", HostPort, ""}}, "ca.example", "", "", "write host:port"},
		{Settings{{"at", HostPort, ""}}, "ca.example:0", "", "", "write host:port"},
		{Settings{{"at", HostPort, ""}}, "ca\nexample:1", "", "", "write host:port"},
		{Settings{{"at", HostPort, ""}}, "ca?x:1", "", "", "write host:port"},
		{Settings{{"at", HostPort, ""}}, "[::1]:1", "at", "[::1]:1", ""},
		{Settings{{"at", HostPort, ""}}, "[fe80::1%eth0]:1", "at", "[fe80::1%eth0]:1", ""},
		{Settings{{"dir", Path, ""}}, "/etc/ca\n", "", "", "write an absolute path"},
		{Settings{{"at", Text, ""}}, "ca\x00", "", "", "write text without control characters, for the setting at"},
		{Settings{}, "x", "", "", "takes no address"},
	} {
		name, value, err := test.settings.Choose(test.address)
		if name != test.name || value != test.value || (err == nil) != (test.refused == "") {
			t.Errorf("%v with %s: got %q, %q, %v", test.settings, test.address, name, value, err)
		}
		if err != nil && (!strings.Contains(err.Error(), test.refused) || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%v with %s: %v; want %s", test.settings, test.address, err, test.refused)
		}
	}
}

func TestAddressReplacesOnlyItsSetting(t *testing.T) {
	s := Settings{{"url", URL, ""}}
	before := map[string]any{"url": "https://old", "role": "web"}
	after, err := s.Apply(before, "new:8200")
	if want := map[string]any{"url": "https://new:8200", "role": "web"}; err != nil || !reflect.DeepEqual(after, want) {
		t.Errorf("got %v, %v", after, err)
	}
	if before["url"] != "https://old" {
		t.Error("Apply has changed what it was given")
	}
	if got := s.In(before); got != "https://old" {
		t.Errorf("In returns %q", got)
	}
	if none, err := Settings(nil).Apply(before, ""); err != nil || !reflect.DeepEqual(none, before) {
		t.Errorf("no address changes the settings to %v, %v", none, err)
	}
}

func TestCheckFindsInvalidMarks(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties":{"a":{"type":"string","x-countersign-address":"uri"}}}`:                                                 "a has x-countersign-address uri",
		`{"properties":{"a":{"type":"string","x-countersign-address":true}}}`:                                                  "a has x-countersign-address true",
		`{"properties":{"a":{"type":"integer","x-countersign-address":"url"}}}`:                                                "not a string",
		`{"properties":{"a":{"type":"string","writeOnly":true,"x-countersign-address":"url"}}}`:                                "a has x-countersign-address, and is secret",
		`{"properties":{"l":{"properties":{"a":{"type":"string","x-countersign-address":"url"}}}}}`:                            "below the top level",
		`{"properties":{"a":{"$ref":"#/$defs/u"}},"$defs":{"u":{"type":"string","x-countersign-address":"url"}}}`:              "below the top level",
		`{"properties":{"l":{"anyOf":[{"x-countersign-address":"url"}]},"a":{"type":"string","x-countersign-address":"url"}}}`: "below the top level",
	} {
		if err := Check(schema); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", schema, err, want)
		}
	}
	if err := Check(`{"properties":{"a":{"type":"string","x-countersign-address":"path"},"b":{}}}`); err != nil {
		t.Error(err)
	}
}
