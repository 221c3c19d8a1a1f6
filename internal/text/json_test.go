package text

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestJSONIsPrintableASCII(t *testing.T) {
	type subject struct {
		CN  string          `json:"cn"`
		Raw json.RawMessage `json:"raw"`
	}
	const hostile = "a\u009b2J\u202e\U0001f600\x7f\x1b"
	raw, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	want := subject{hostile, raw}
	for _, indent := range []string{"", "  "} {
		var out strings.Builder
		if err := WriteJSON(&out, want, indent); err != nil {
			t.Fatal(err)
		}
		for _, b := range []byte(strings.ReplaceAll(out.String(), "\n", "")) {
			if b < ' ' || b > '~' {
				t.Errorf("%q has %#x", out.String(), b)
			}
		}
		var got subject
		var inner string
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.CN != hostile || json.Unmarshal(got.Raw, &inner) != nil || inner != hostile {
			t.Errorf("got %+v, %v", got, err)
		}
		if strings.Count(out.String(), "\n") == 1 != (indent == "") {
			t.Errorf("the lines are %q", out.String())
		}
	}
	if err := WriteJSON(&strings.Builder{}, json.RawMessage("{"), ""); err == nil {
		t.Error("malformed JSON is written")
	}
}
