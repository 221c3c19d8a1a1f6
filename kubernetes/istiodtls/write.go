package istiodtls

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// keep brings the Secret in line with what is held. It reports whether that undid what somebody
// else did.
func (k *Keeper) keep(ctx context.Context, pairs secret.Source) (repaired bool, err error) {
	want, item, err := k.wants(pairs)
	if err != nil {
		return false, err
	}
	found, err := k.get(ctx)
	if err == nil {
		err = k.owned(found)
	}
	if err != nil {
		return false, err
	}
	version := item.Version + string(want["ca.crt"])
	if found == nil || !owned.Labelled(found.Labels) || !has(found.Data, want) {
		repaired = k.wrote == version && !k.newsOnly(found, want)
		if k.rival = ""; found != nil {
			k.rival = owned.Rival(found.ManagedFields, "")
		}
		if err := k.write(ctx, found, want); err != nil {
			return false, err
		}
	}
	k.wrote = version
	k.show(item)
	return repaired, nil
}

// newsOnly reports whether a Secret lacks nothing but our own last records.
func (k *Keeper) newsOnly(found *corev1.Secret, want map[string][]byte) bool {
	if found == nil || !owned.Labelled(found.Labels) {
		return false
	}
	without := map[string][]byte{"tls.crt": want["tls.crt"], "tls.key": want["tls.key"], "ca.crt": want["ca.crt"]}
	return has(found.Data, without)
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

func (k *Keeper) show(item *secret.Item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Fingerprint, k.status.NotAfter = item.Fingerprint, item.NotAfter
}

// get returns the Secret as it is now, or nil if there is none.
func (k *Keeper) get(ctx context.Context) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, owned.CallTimeout)
	defer cancel()
	found, err := k.cfg.Client.CoreV1().Secrets(k.cfg.Namespace).Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

// owned returns an error if the Secret is not ours to change. One that we have written is,
// whatever became of its labels.
func (k *Keeper) owned(found *corev1.Secret) error {
	switch {
	case found == nil:
		return nil
	case found.Type != corev1.SecretTypeTLS:
		return fmt.Errorf("it exists with the type %.64q, which cannot be changed: delete it", found.Type)
	case k.cfg.Adopt, k.claim.Owns(found.UID, owned.Labelled(found.Labels)):
		return nil
	}
	return owned.ErrForeign
}

// write creates the Secret, or changes the one that was found, unless it has changed since.
func (k *Keeper) write(ctx context.Context, over *corev1.Secret, want map[string][]byte) error {
	if err := k.cfg.Held(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, owned.CallTimeout)
	defer cancel()
	s := apply.Secret(Name, k.cfg.Namespace).WithLabels(map[string]string{owned.ManagedBy: owned.Manager}).WithType(corev1.SecretTypeTLS).WithData(want)
	if over != nil {
		s.WithUID(over.UID).WithResourceVersion(over.ResourceVersion)
	}
	// Where nothing was found, what somebody made meanwhile is not overwritten.
	made, err := k.cfg.Client.CoreV1().Secrets(k.cfg.Namespace).Apply(ctx, s, metav1.ApplyOptions{FieldManager: owned.Manager, Force: over != nil})
	switch {
	case err != nil:
		return wordless(err)
	case !has(made.Data, want):
		return owned.ErrAltered
	}
	k.claim.Took(made.UID)
	return nil
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
