package fleet

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// apiServer stands in for a cluster's. The token "good" is that of shop's service account web.
type apiServer struct{ *kubetest.FakeServer }

func newAPIServer(t testing.TB, token string) *apiServer {
	t.Helper()
	f := kubetest.NewFake()
	f.Token, f.Ended, f.Answers["tokenreviews"] = token, happened.tell, review
	return &apiServer{f.Listen(t)}
}

func (s *apiServer) config() *rest.Config { return s.Config() }

func (s *apiServer) kubeconfig(mark string) []byte { return s.Kubeconfig(mark) }

// fail has the server answer everything with a status from now on; 0 heals it, -1 breaks each
// connection, and with -2 it hangs.
func (s *apiServer) fail(status int) {
	switch status {
	case 0:
		s.Fail(nil)
	case -1:
		s.Fail(errors.New("no answer at all"))
	case -2:
		s.Hang()
	default:
		s.refuses(status)
		s.Cut()
	}
}

// refuses has it answer with a status from now on, and leaves watches open.
func (s *apiServer) refuses(status int) {
	s.Set(func() {
		s.Before = func(c *kubetest.Call) error {
			if status == 0 {
				return nil
			}
			return refusal(status, "the test says so to "+c.Header.Get("Authorization"))
		}
	})
}

// answer has another handler answer from now on whom it knows; nil ends that.
func (s *apiServer) answer(instead http.HandlerFunc) {
	s.Set(func() { s.Instead = instead })
	s.fail(0)
}

func (s *apiServer) put(o metav1.Object) { s.Put(o) }

func (s *apiServer) remove(o metav1.Object) {
	resource := "configmaps"
	if _, is := o.(*corev1.Secret); is {
		resource = "secrets"
	}
	s.Remove(resource, o.GetNamespace(), o.GetName())
}

// asked are its requests.
func (s *apiServer) asked() (all []string) {
	for _, c := range s.Calls() {
		all = append(all, c.Method+" "+c.URL)
	}
	return all
}

func refusal(status int, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(status), Message: message,
	}}
}

func refuse(w http.ResponseWriter, status int, message string) {
	inJSON(w).WriteHeader(status)
	_ = json.NewEncoder(w).Encode(refusal(status, message).ErrStatus)
}

func review(o kubetest.Object) any {
	o["status"] = kubetest.Object{
		"authenticated": o.At("spec", "token") == "good", "audiences": o.At("spec", "audiences"),
		"user": kubetest.Object{
			"username": "system:serviceaccount:shop:web", "groups": []string{"system:serviceaccounts", "system:serviceaccounts:shop"},
		},
	}
	return o
}
