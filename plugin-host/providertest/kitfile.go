package providertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// maxFile bounds a kit file and a token.
const maxFile = 1 << 20

// kitFile is the kit as YAML or JSON. Paths in it are from its own folder.
type kitFile struct {
	conformance.Kit
	Env                     map[string]string `json:"env"`
	TokenFile               string            `json:"token_file"`
	RefusedTokenFile        string            `json:"refused_token_file"`
	Exchange                exchange          `json:"exchange"`
	RefusedSubjectTokenFile string            `json:"refused_subject_token_file"`
}

type exchange struct {
	SubjectTokenFile   string   `json:"subject_token_file"`
	SubjectTokenType   string   `json:"subject_token_type"`
	Audience           string   `json:"audience"`
	Resource           string   `json:"resource"`
	Scopes             []string `json:"scopes"`
	RequestedTokenType string   `json:"requested_token_type"`
}

// LoadKit reads a kit file, and the tokens that it names, into the target.
func (t *Target) LoadKit(path string) error {
	text, err := readFile(path)
	if err != nil {
		return err
	}
	var file kitFile
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return fmt.Errorf("the kit file %s: %w", path, err)
	}
	t.Kit, t.Env = file.Kit, file.Env
	e := file.Exchange
	t.Kit.Exchange = ca.TokenRequest{SubjectTokenType: e.SubjectTokenType, Audience: e.Audience, Resource: e.Resource, Scopes: e.Scopes, RequestedType: e.RequestedTokenType}
	dir := filepath.Dir(path)
	return errors.Join(
		readToken(dir, file.TokenFile, &t.Kit.Token), readToken(dir, file.RefusedTokenFile, &t.Kit.RefusedToken),
		readToken(dir, e.SubjectTokenFile, &t.Kit.Exchange.SubjectToken), readToken(dir, file.RefusedSubjectTokenFile, &t.Kit.RefusedSubjectToken),
	)
}

// LoadSettings reads a file with settings alone, YAML or JSON.
func (t *Target) LoadSettings(path string) error {
	text, err := readFile(path)
	if err != nil {
		return err
	}
	var settings map[string]any
	if err := yaml.UnmarshalStrict(text, &settings); err != nil {
		return fmt.Errorf("the settings file %s: %w", path, err)
	}
	t.Kit.Settings = settings
	return nil
}

func readToken(dir, name string, into *ca.Token) error {
	if name == "" {
		return nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	text, err := readFile(name)
	*into = ca.Token(strings.TrimSpace(string(text)))
	if err == nil && *into == "" {
		return fmt.Errorf("the token file %s is empty", name)
	}
	return err
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, %d are allowed", path, info.Size(), maxFile)
	}
	return os.ReadFile(path)
}
