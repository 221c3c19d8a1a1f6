package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	yamlnode "go.yaml.in/yaml/v3"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

const (
	// MaxSize is the maximum size of a kubeconfig in bytes; a Secret cannot be larger.
	MaxSize  = 1 << 20
	maxDepth = 32
	maxNodes = 20000
)

// decode parses the text. Its errors quote nothing: misplaced content may be a
// password.
func decode(text []byte) (*clientcmdapi.Config, error) {
	if err := checkText(text); err != nil {
		return nil, err
	}
	if err := checkShape(text); err != nil {
		return nil, err
	}
	file, err := readFile(text)
	if err != nil {
		return nil, err
	}
	if file.Kind != "" && file.Kind != "Config" || file.APIVersion != "" && file.APIVersion != "v1" {
		return nil, errors.New(`wrong apiVersion or kind: must be "v1" and "Config"`)
	}
	config := clientcmdapi.NewConfig()
	if latest.Scheme.Convert(file, config, nil) != nil {
		return nil, errors.New("duplicate name among clusters, users or contexts")
	}
	return config, nil
}

// readFile reads the fields.
func readFile(text []byte) (*clientcmdv1.Config, error) {
	var file struct {
		clientcmdv1.Config `json:",inline"`

		// kubectl ignores the field that its first releases wrote into each cluster.
		Clusters []struct {
			Name    string `json:"name"`
			Cluster struct {
				clientcmdv1.Cluster `json:",inline"`

				APIVersion string `json:"api-version"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("malformed%s: unknown field, duplicate field or value of the wrong type", placeOf(text, err))
	}
	for _, c := range file.Clusters {
		file.Config.Clusters = append(file.Config.Clusters, clientcmdv1.NamedCluster{Name: c.Name, Cluster: c.Cluster.Cluster})
	}
	return &file.Config, nil
}

func checkText(text []byte) error {
	switch {
	case len(text) > MaxSize:
		return fmt.Errorf("larger than %d bytes", MaxSize)
	case len(bytes.TrimSpace(text)) == 0:
		return errors.New("empty file")
	case !utf8.Valid(text):
		return errors.New("not valid UTF-8")
	case bytes.ContainsFunc(text, isControl):
		return errors.New("control character in text")
	}
	return nil
}

// isControl also covers characters that make one text look like another.
func isControl(r rune) bool {
	return r != '\n' && r != '\r' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
}

// checkShape rejects YAML that is ambiguous or expands to much more than its text.
func checkShape(text []byte) error {
	decoder := yamlnode.NewDecoder(bytes.NewReader(text))
	var document, second, third yamlnode.Node
	if err := decoder.Decode(&document); err != nil {
		return fmt.Errorf("not valid YAML%s", where(err))
	}
	// A document that ends with "---" is followed by an empty one.
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) && !(err == nil && isEmpty(&second) && errors.Is(decoder.Decode(&third), io.EOF)) {
		return errors.New("more than one YAML document")
	}
	nodes := 0
	return checkNode(&document, 0, &nodes)
}

func isEmpty(document *yamlnode.Node) bool {
	return len(document.Content) == 1 && document.Content[0].Tag == "!!null" && document.Content[0].Value == ""
}

func checkNode(n *yamlnode.Node, depth int, nodes *int) error {
	*nodes++
	switch {
	case depth > maxDepth || *nodes > maxNodes:
		return fmt.Errorf("nested too deeply or too many values (line %d)", n.Line)
	case n.Kind == yamlnode.AliasNode || n.Anchor != "":
		return fmt.Errorf("anchors and aliases are not allowed (line %d)", n.Line)
	case n.Kind == yamlnode.ScalarNode && strings.ContainsFunc(n.Value, isControl):
		return fmt.Errorf("control character in text (line %d)", n.Line)
	case n.Kind == yamlnode.MappingNode:
		if err := checkKeys(n); err != nil {
			return err
		}
	}
	for _, child := range n.Content {
		if err := checkNode(child, depth+1, nodes); err != nil {
			return err
		}
	}
	return nil
}

// checkKeys ignores case, as JSON decoders do.
func checkKeys(n *yamlnode.Node) error {
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		name := strings.ToLower(key.Value)
		if key.Kind != yamlnode.ScalarNode || name == "<<" || seen[name] {
			return fmt.Errorf("duplicate, merged or non-string field name (line %d)", key.Line)
		}
		seen[name] = true
	}
	return nil
}

var lineOf = regexp.MustCompile(`\bline (\d{1,7})\b`)

// where reduces a decoder's error to its position.
func where(err error) string {
	if found := lineOf.FindStringSubmatch(err.Error()); found != nil {
		return " (line " + found[1] + ")"
	}
	return ""
}
