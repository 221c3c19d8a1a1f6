package fleet

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/kubeconfig"
)

// claim is a kubeconfig for a cluster id, with its origin.
type claim struct {
	id     string
	source string // as displayed
	text   []byte
	fault  string // why text is missing
}

func (c claim) sum() [sha256.Size]byte {
	return sha256.Sum256(append([]byte(c.fault+"\x00"), c.text...))
}

// parse returns the configuration, or why there is none.
func (c claim) parse(rules kubeconfig.Rules) (config *rest.Config, fault string) {
	switch {
	case !isID(c.id):
		return nil, "invalid cluster id: " + rightID
	case c.fault != "":
		return nil, c.fault
	}
	config, err := kubeconfig.Parse(c.text, rules)
	if err != nil {
		return nil, err.Error()
	}
	return config, ""
}

// claimsOf returns the claims in Secrets, oldest first, so that our restart does not
// hand an id to a later claim.
func claimsOf(secrets []*corev1.Secret) []claim {
	slices.SortFunc(secrets, func(a, b *corev1.Secret) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var claims []claim
	for _, s := range secrets {
		source := fmt.Sprintf("secret %s/%s", s.Namespace, s.Name)
		for id, text := range s.Data {
			claims = append(claims, claim{id: id, source: source, text: text})
		}
	}
	return claims
}

// readFolder returns the claims in a folder's files, by name. It skips hidden files: in
// a mounted volume they are the targets of its symlinks.
func readFolder(folder string) ([]claim, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var claims []claim
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		path := filepath.Join(folder, name)
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			continue
		}
		if errors.Is(err, os.ErrNotExist) && entry.Type() != os.ModeSymlink {
			continue // deleted meanwhile
		}
		claims = append(claims, readFile(path))
	}
	return claims, nil
}

func readFile(path string) claim {
	name := filepath.Base(path)
	c := claim{id: strings.TrimSuffix(name, filepath.Ext(name)), source: "file " + text.Clean(path)}
	content, err := safefile.Read(path, kubeconfig.MaxSize)
	if err != nil {
		c.fault = "cannot be read: " + text.Clean(err.Error())
	}
	c.text = content
	return c
}
