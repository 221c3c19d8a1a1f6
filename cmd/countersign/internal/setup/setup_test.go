package setup

import (
	"os"
	"testing"
)

func TestRuleIsThatOfTheExample(t *testing.T) {
	example, err := os.ReadFile("../../../../examples/nginx/50-countersign-nginx.rules")
	if err != nil {
		t.Fatal(err)
	}
	if string(example) != nginxRule {
		t.Errorf("the rule is\n%s\nand that of the example\n%s", nginxRule, example)
	}
}
