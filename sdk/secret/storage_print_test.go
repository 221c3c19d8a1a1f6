package secret_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestRecordNeverShowsItsContent(t *testing.T) {
	const key = "geheim"
	r := secret.Record{Identity: "id", Authority: "ca", Content: []byte(key)}
	shown := map[string]string{}
	values := map[string]any{"record": r, "pointer": &r, "map": map[string]secret.Record{"x": r}}
	for name, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%X"} {
			shown[verb+" of a "+name] = fmt.Sprintf(verb, value)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		shown["JSON of a "+name] = string(encoded)
		for kind, handler := range map[string]func(*strings.Builder) slog.Handler{
			"text": func(b *strings.Builder) slog.Handler { return slog.NewTextHandler(b, nil) },
			"JSON": func(b *strings.Builder) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var line strings.Builder
			slog.New(handler(&line)).Info("stored", "record", value)
			shown["slog "+kind+" of a "+name] = line.String()
		}
	}
	for how, text := range shown {
		for _, form := range []string{key, base64.StdEncoding.EncodeToString([]byte(key)), "67656865696d", "67656865696D", "103 101", "0x67"} {
			if strings.Contains(text, form) {
				t.Errorf("%s shows the content: %s", how, text)
			}
		}
		if !strings.Contains(text, "ca") {
			t.Errorf("%s does not name the authority: %s", how, text)
		}
	}
}
