package process

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandshakeAddressIsChecked(t *testing.T) {
	const dir = "/run/private"
	for line, want := range map[string]string{
		"1|1|unix|fd:4|grpc":                   "",
		"1|1|unix|fd:4|grpc|":                  "",
		"1|1|unix|/run/private/s|grpc":         "",
		"1|1|unix|fd:4|grpc|QUFB":              "and a certificate",
		"1|1|unix|/run/private/s|grpc|%%%":     "unpadded base64",
		"1|1|unix|/run/private/s|grpc|QUFB":    "the certificate in the handshake line is malformed",
		"1|1|unix|/run/private/../s|grpc":      "outside the folder",
		"1|1|unix|/run/private/a/s|grpc":       "outside the folder",
		"1|1|unix|s|grpc":                      "outside the folder",
		"1|1|tcp|127.0.0.1:80|grpc":            "network",
		"1|2|unix|fd:4|grpc":                   "protocol version",
		"1|x|unix|fd:4|grpc":                   "protocol version",
		"2|1|unix|fd:4|grpc":                   "core protocol",
		"1|1|unix|fd:4|netrpc":                 "want grpc",
		"1|1|unix|fd:4":                        "invalid handshake line",
		"hello":                                "invalid handshake line",
		"1|1|unix|/run/private/s|grpc|x|true|": "invalid handshake line",
	} {
		h, err := parseHandshake(line, []int{1}, dir)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %+v, %v; want %q", line, h, err, want)
		}
	}
}

func TestFirstLineIsBoundedAndAlone(t *testing.T) {
	for text, want := range map[string]string{
		"line\n":                    "",
		"line\nmore":                "second line",
		strings.Repeat("x", 20_000): "longer than",
		"cut off":                   "EOF",
		"":                          "EOF",
	} {
		line, err := readHandshake(strings.NewReader(text))
		if want == "" && (err != nil || line != "line") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.20q: %.20q, %v; want %q", text, line, err, want)
		}
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add("1|1|unix|fd:4|grpc|")
	f.Add("1|1|unix|/run/private/s|grpc|QUFB")
	f.Fuzz(func(t *testing.T, text string) {
		line, err := readHandshake(strings.NewReader(text))
		if err != nil {
			return
		}
		h, err := parseHandshake(line, []int{1}, "/run/private")
		if err == nil && h.auth != Channel && !strings.HasPrefix(h.address, "/run/private/") {
			t.Errorf("%q would be dialled", h.address)
		}
	})
}
