package podcert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server stores 256 KiB of annotations that the pod's author chooses, and as many of its own.
func TestWaitingRequestKeepsOnlyWhatDecides(t *testing.T) {
	ballast := strings.Repeat("x", 200<<10)
	r := &request{ObjectMeta: metav1.ObjectMeta{Name: "req", UID: "uid", Annotations: map[string]string{"a": ballast}, Labels: map[string]string{"l": ballast}}}
	r.Spec.SignerName, r.Spec.StubPKCS10Request = "example.org/web", bytes.Repeat([]byte("x"), 1<<20)
	for name, c := range map[string]struct {
		annotations map[string]string
		keys        int
	}{
		"none":          {nil, 0},
		"names":         {map[string]string{AnnotationDNSNames: "a.example.org"}, 1},
		"many names":    {map[string]string{AnnotationDNSNames: ballast}, 1},
		"another":       {map[string]string{"zz.example.org/a": ballast}, 1},
		"one of each":   {map[string]string{AnnotationDNSNames: "a.example.org", "zz.example.org/a": ballast}, 2},
		"many of each":  {many(AnnotationDNSNames, ballast), 2},
		"many of other": {many("zz.example.org/a", ballast), 1},
	} {
		t.Run(name, func(t *testing.T) {
			whole := r.DeepCopy()
			whole.Spec.UnverifiedUserAnnotations, whole.Spec.StubPKCS10Request = c.annotations, []byte("x")
			_, want := judge(whole)
			whole.Spec.StubPKCS10Request = r.Spec.StubPKCS10Request
			kept := trimmed(whole)
			if text, err := json.Marshal(kept); err != nil || len(text) > 20<<10 || len(kept.Spec.UnverifiedUserAnnotations) != c.keys {
				t.Errorf("%d bytes are kept, %d annotations: %v", len(text), len(kept.Spec.UnverifiedUserAnnotations), err)
			}
			kept.Spec.StubPKCS10Request = []byte("x")
			if _, got := judge(kept); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("it is refused for %v, and was for %v", got, want)
			}
		})
	}
}

func many(key, value string) map[string]string {
	all := map[string]string{key: value}
	for n := range 1000 {
		all[fmt.Sprintf("zz.example.org/b%04d", n)] = ""
	}
	return all
}
