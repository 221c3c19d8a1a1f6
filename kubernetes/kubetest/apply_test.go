package kubetest_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

func TestFakeAppliesLikeARealServer(t *testing.T) { applies(t, kubetest.NewFake().Client()) }

// applies demands the same of the Fake and of a real server, in a namespace shop without ConfigMaps.
func applies(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("shop")
	send := func(value, uid, version string, force bool) (uidNow, versionNow string, err error) {
		m := apply.ConfigMap("m", "shop").WithData(map[string]string{"k": value})
		if uid != "" {
			m.WithUID(types.UID(uid)).WithResourceVersion(version)
		}
		made, err := maps.Apply(t.Context(), m, metav1.ApplyOptions{FieldManager: "ours", Force: force})
		return string(made.UID), made.ResourceVersion, err
	}
	if _, _, err := send("1", "gone", "1", true); !apierrors.IsConflict(err) {
		t.Errorf("an object that is gone: %v", err)
	}
	uid, first, err := send("1", "", "", false)
	must(t, err)
	if _, again, err := send("1", uid, first, true); err != nil || again != first {
		t.Errorf("the same again: version %s after %s, %v", again, first, err)
	}
	theirs := configMap("shop", "2")
	theirs.Data["more"] = "kept"
	_, err = maps.Update(t.Context(), theirs, metav1.UpdateOptions{FieldManager: "theirs"})
	must(t, err)
	for name, row := range map[string]struct {
		uid, version string
		force        bool
	}{"not forced": {}, "an old version": {uid, first, true}, "another object": {"other", first, true}} {
		if _, _, err := send("1", row.uid, row.version, row.force); !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	now, err := maps.Get(t.Context(), "m", metav1.GetOptions{})
	must(t, err)
	_, _, err = send("1", uid, now.ResourceVersion, true)
	must(t, err)
	if now, err = maps.Get(t.Context(), "m", metav1.GetOptions{}); err != nil || now.Data["k"] != "1" || now.Data["more"] != "kept" {
		t.Errorf("%+v, %v", now, err)
	}
}
