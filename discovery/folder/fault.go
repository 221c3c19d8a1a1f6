package folder

import (
	"errors"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
)

// fault is an error at one place in a document.
type fault struct {
	path []string // from the document down: "resources", "[0]", "name"
	text string   // one sentence
}

// Error names the place in Envoy's notation: document 1, resources[0].name.
func (f *fault) Error() string {
	place := strings.ReplaceAll(strings.Join(f.path, "."), ".[", "[")
	if strings.HasPrefix(place, "document ") {
		place = strings.Replace(place, ".", ", ", 1)
	}
	if place == "" {
		return f.text
	}
	return text.Clean(place) + ": " + f.text
}

func faultf(format string, args ...any) error {
	return &fault{text: fmt.Sprintf(format, args...)}
}

// at returns err as having occurred below that place.
func at(place string, err error) error {
	if err == nil {
		return nil
	}
	below, ok := errors.AsType[*fault](err)
	if !ok {
		below = &fault{text: text.Clean(err.Error())}
	}
	return &fault{append([]string{place}, below.path...), below.text}
}

func index(i int) string { return fmt.Sprintf("[%d]", i) }
