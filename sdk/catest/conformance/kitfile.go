package conformance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// maxFile bounds a kit file and a token, in bytes.
const maxFile = 1 << 20

// kitFile is the kit as YAML or JSON, with the names of files in place of tokens.
type kitFile struct {
	Kit
	TokenFile               string       `json:"token_file"`
	RefusedTokenFile        string       `json:"refused_token_file"`
	Exchange                exchangeFile `json:"exchange"`
	RefusedSubjectTokenFile string       `json:"refused_subject_token_file"`
}

// Placeholder stands in a kit file for a value that its author has not written yet.
const Placeholder = "FILL-IN"

type exchangeFile struct {
	SubjectTokenFile   string   `json:"subject_token_file"`
	SubjectTokenType   string   `json:"subject_token_type"`
	Audience           string   `json:"audience"`
	Resource           string   `json:"resource"`
	Scopes             []string `json:"scopes"`
	RequestedTokenType string   `json:"requested_token_type"`
}

// LoadKit reads a kit file, YAML or JSON, and the tokens whose files it names by paths from its
// own folder. docs/conformance.md lists the entries; an unknown one is an error.
func LoadKit(path string) (Kit, error) {
	var file kitFile
	if err := LoadYAML(path, &file); err != nil {
		return Kit{}, err
	}
	if err := unfilled("settings", file.Settings); err != nil {
		return Kit{}, fmt.Errorf("%s: %w", path, err)
	}
	if file.TokenIgnored && (file.TokenRequired || file.RefusedTokenFile != "") {
		return Kit{}, fmt.Errorf("%s: token_ignored is set with token_required or refused_token_file: remove it, or remove those", path)
	}
	kit, e := file.Kit, file.Exchange
	kit.Exchange = ca.TokenRequest{SubjectTokenType: e.SubjectTokenType, Audience: e.Audience, Resource: e.Resource, Scopes: e.Scopes, RequestedType: e.RequestedTokenType}
	dir := filepath.Dir(path)
	kit.Dir = dir // of references, too
	return kit, errors.Join(
		readToken(dir, file.TokenFile, &kit.Token), readToken(dir, file.RefusedTokenFile, &kit.RefusedToken),
		readToken(dir, e.SubjectTokenFile, &kit.Exchange.SubjectToken), readToken(dir, file.RefusedSubjectTokenFile, &kit.RefusedSubjectToken),
	)
}

// unfilled is an error if a placeholder is left: as a value, or as a name that the author chooses.
func unfilled(path string, value any) error {
	switch value := value.(type) {
	case string:
		if value == Placeholder {
			return fmt.Errorf("%s is still %s: write a value that your CA takes", path, Placeholder)
		}
	case []any:
		for i, one := range value {
			if err := unfilled(path+"."+strconv.Itoa(i), one); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			err := unfilled(path+"."+name, name)
			if err == nil {
				err = unfilled(path+"."+name, value[name])
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// LoadYAML reads a file of at most 1 MiB, YAML or JSON, into a value with json tags. A name that
// the value does not have is an error.
func LoadYAML(path string, into any) error {
	text, err := readFile(path)
	if err != nil {
		return err
	}
	var plain any
	if err := yaml.Unmarshal(text, &plain); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if text, err = json.Marshal(plain); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", path, asEntry(err))
	}
	return nil
}

// asEntry describes an error of package json in the words of a kit file.
func asEntry(err error) error {
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return fmt.Errorf("there is no entry %s: docs/conformance.md lists all", name)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is a %s: docs/conformance.md shows how to write it", cmp.Or(wrong.Field, "the file"), wrong.Value)
	}
	return err
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
		return fmt.Errorf("the file %s is empty", name)
	}
	return err
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, err
}
