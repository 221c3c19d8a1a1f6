package fleet

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

func TestClientGoLogsAreCleanedAndDebugOnly(t *testing.T) {
	defer klog.ClearLogger()
	for level, heard := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true, slog.LevelDebug - 10: true} {
		var text strings.Builder
		LogClient(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: level})))
		ctx := klog.NewContext(t.Context(), klog.Background().WithValues("server", "east\x1b[2J"))
		klog.FromContext(ctx).Error(errors.New("no\nlevel=ERROR msg=forged"), "Warning: \x1b[31mred", "url", strings.Repeat("u", 1000))
		klog.FromContext(ctx).V(8).Info("Request Body", "body", "a token")
		klog.Warningf("plain %s", "words")
		said := text.String()
		if !heard {
			if said != "" {
				t.Errorf("at %s: %s", level, said)
			}
			continue
		}
		for _, want := range []string{"level=DEBUG", `client-go: Warning: \\x1b[31mred`, `no\\nlevel=ERROR`, `east\x1b[2J`, "client-go: plain words"} {
			if !strings.Contains(said, want) {
				t.Errorf("at %s: %q is not in %s", level, want, said)
			}
		}
		if strings.Contains(said, "a token") || strings.Contains(said, strings.Repeat("u", 300)) || strings.Contains(said, "level=WARN") {
			t.Errorf("at %s: %s", level, said)
		}
	}
}
