package istiodtls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/owned"
)

// lacksRecords reports whether data lacks our own last records at most, which no other client removed.
func lacksRecords(data, want map[string][]byte) bool {
	content := maps.Clone(want)
	delete(content, stateKey)
	return has(data, content)
}

// has reports whether all that is wanted is there.
func has(data, want map[string][]byte) bool {
	for key, value := range want {
		if !bytes.Equal(data[key], value) {
			return false
		}
	}
	return true
}

// write creates the Secret, or changes the one that was found, unless it has changed since.
func (k *Keeper) write(found *corev1.Secret, want map[string][]byte) owned.Write {
	s := apply.Secret(Name, k.cfg.Namespace).WithLabels(owned.Labels()).WithType(corev1.SecretTypeTLS).WithData(want)
	if found != nil {
		s.WithUID(found.UID).WithResourceVersion(found.ResourceVersion)
	}
	return func(ctx context.Context) (types.UID, bool, error) {
		made, err := k.cfg.Client.CoreV1().Secrets(k.cfg.Namespace).Apply(ctx, s, owned.Options(found != nil))
		if err != nil {
			return "", false, wordless(err)
		}
		return made.UID, has(made.Data, want), nil
	}
}

// wordless keeps an API server's words about a write to itself, as they may quote the key.
func wordless(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	said := status.Status()
	return fmt.Errorf("the API server refuses to store it: %d %s", said.Code, text.Clean(string(said.Reason)))
}
