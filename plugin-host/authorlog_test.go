package pluginhost_test

import (
	"fmt"
	"strings"
	"testing"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

func TestAuthorLogCarriesProviderPIDAndGeneration(t *testing.T) {
	h := newHost(t, "good")
	p := h.open(t, pluginhost.Entry{Name: "corp", Provider: "good"})
	want := fmt.Sprintf(`level=WARN msg=opened provider=corp pid=%d generation=1 fail="" names="{\"of\":[\"a\",\"b\"]}"`, p.Status().PID)
	h.rec.await(t, want, func(log string, _ []pluginhost.Status) bool { return strings.Contains(log, want) })
}
