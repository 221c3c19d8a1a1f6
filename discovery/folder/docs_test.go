package folder

import (
	"os"
	"strings"
	"testing"
)

func TestDocsExamplesAreValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/discovery-folder.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(text), "```yaml\n")[1:]
	if len(examples) < 6 {
		t.Fatalf("there are %d examples", len(examples))
	}
	for _, example := range examples {
		content, _, _ := strings.Cut(example, "```")
		if f, err := parse([]byte(content)); err != nil || len(f.versions) == 0 {
			t.Errorf("%v in\n%s", err, content)
		}
	}
}
