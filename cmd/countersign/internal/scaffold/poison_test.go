//go:build e2e

package scaffold_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// installAgain installs a new project once more, with its library removed, from the registry at $URL.
var installAgain = map[string]string{
	"python": "venv/bin/pip uninstall --yes countersign-provider-7-new && venv/bin/pip install --disable-pip-version-check --no-build-isolation --index-url $URL/simple/ .",
	"node":   "rm -r node_modules/countersign-provider && npm install --no-audit --no-fund --registry $URL/",
}

// mustNotTakePoison installs the project from a registry that offers a package with the library's
// name and a high version. Without the direct reference, the package manager takes that one.
func mustNotTakePoison(t *testing.T, dir, lang string) {
	t.Helper()
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := strings.Trim(strings.TrimPrefix(r.URL.Path, "/simple"), "/"); path == "countersign-provider" {
			t.Errorf("the registry was asked for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<a href="/countersign_provider-99-py3-none-any.whl">countersign_provider-99-py3-none-any.whl</a>`)
	}))
	defer registry.Close()
	if command, ok := installAgain[lang]; ok {
		runIn(t, dir, strings.ReplaceAll(command, "$URL", registry.URL))
	}
}
