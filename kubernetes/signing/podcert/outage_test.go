package podcert_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing/podcert"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
)

var errAway = errors.New("connection refused")

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web-0", errors.New("no rights"))
}

// The API server has taken the write, its answer was lost, and the next write conflicts with it.
func TestWriteWhoseAnswerIsLostIsDelivered(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		var taken *request
		c.api.Also(func(call *kubetest.Call) error {
			switch {
			case call.Verb == "get" && call.Resource == requests:
				call.Reply = taken
				return nil
			case call.Verb != "update":
				return nil
			}
			taken = kubetest.As[request](call.Object)
			return apierrors.NewConflict(schema.GroupResource{Resource: requests}, "req-1", errors.New("changed"))
		})
		c.create(honest())
		if c.happened("issued") != 1 || c.happened("undelivered") > 0 {
			t.Errorf("%v", c.events)
		}
	})
}

// The informer shows the write whose answer was lost, which ends the work on the request.
func TestWriteThatOnlyTheInformerShowsIsDelivered(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		c.api.Also(func(call *kubetest.Call) error {
			if call.Verb != "update" {
				return nil
			}
			c.api.Put(call.Object)
			return apierrors.NewInternalError(errors.New("the connection is cut"))
		})
		c.create(honest())
		time.Sleep(time.Minute)
		if lines := c.audit.Lines(t, "withheld"); len(lines) > 0 || c.happened("issued") != 1 || c.happened("undelivered") > 0 {
			t.Errorf("%v, %v", lines, c.events)
		}
	})
}

// No error of an authority is final for a pod.
func TestNoReplyOfAnAuthorityIsFinal(t *testing.T) {
	for name, fault := range map[string]catest.Fault{
		"away":                  {Err: ca.ErrUnavailable},
		"a quota":               {Err: ca.ErrRateLimited},
		"a quota, with a time":  {Err: &ca.Error{Reason: ca.RateLimited, RetryAfter: 5 * time.Minute}},
		"an unknown error":      {Err: errors.New("what is this?")},
		"it denies":             {Err: ca.ErrDenied},
		"it cannot sign this":   {Err: ca.ErrInvalid},
		"our token is rejected": {Err: ca.ErrUnauthenticated},
		"it has no settings":    {Err: ca.ErrNotConfigured},
		"it lacks the ability":  {Err: ca.ErrUnimplemented},
		"it hangs":              {Hang: true},
		"another key":           {Break: catest.WrongKey},
		"another name":          {Break: catest.WrongName},
		"an expired leaf":       {Break: catest.Expired},
		"a stranger's leaf":     {Break: catest.OtherAuthority},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, nil, func(c *cluster) {
				c.ca.Always(fault)
				c.create(honest())
				time.Sleep(10 * time.Minute)
				c.want(pending)
				if n := len(c.ca.Requests()); n > 60 && !errors.Is(fault.Err, ca.ErrRateLimited) { // that lowers the rate for all
					t.Errorf("the authority was asked %d times in 10 minutes", n)
				}
				c.ca.Always(catest.Fault{})
				time.Sleep(11 * time.Minute) // its stop, its own time, or the engine's wait
				c.want(issuedState)
			})
		})
	}
}

func TestUnreachableAPIServerLeavesRequestsPending(t *testing.T) {
	for _, resource := range []string{"pods", "serviceaccounts", "nodes"} {
		for name, err := range map[string]error{"away": errAway, "no rights": forbidden(), "a timeout": context.DeadlineExceeded} {
			t.Run(resource+" "+name, func(t *testing.T) {
				inCluster(t, nil, func(c *cluster) {
					end := c.api.FailOn("get", resource, err)
					c.create(honest())
					time.Sleep(10 * time.Minute)
					c.want(pending)
					end()
					time.Sleep(time.Minute)
					c.want(issuedState)
				})
			})
		}
	}
}

// A request that is refused for what was true a moment ago is looked at once more, live.
func TestRefusalNeedsTheLiveWord(t *testing.T) {
	for _, what := range []struct{ verb, resource string }{
		{"get", requests}, {"update", requests}, {"get", "serviceaccounts"}, {"get", "nodes"},
	} {
		t.Run(what.verb+" "+what.resource, func(t *testing.T) {
			inCluster(t, nil, func(c *cluster) {
				c.create(honest()) // the UIDs are known now
				c.want(issuedState)
				if err := c.engine.SetPolicy(ratest.Policy(t)); err != nil {
					t.Fatal(err)
				}
				end := c.api.FailOn(what.verb, what.resource, errAway)
				second := honest()
				second.Name, second.UID = "req-2", "2"
				c.create(second)
				time.Sleep(10 * time.Minute)
				if got := c.state("req-2"); got != pending {
					t.Errorf("without the live word: %s", got)
				}
				end()
				time.Sleep(time.Minute)
				if got := c.state("req-2"); got != "Denied NotPermitted" {
					t.Errorf("with it: %s\n%s", got, c.log.String())
				}
			})
		})
	}
}

func TestStatusThatCannotBeWrittenKeepsItsCertificate(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		end := c.api.FailOn("update", requests, errAway)
		c.create(honest())
		asked := len(c.ca.Requests())
		time.Sleep(2 * time.Minute) // of the 5 that the API server allows; the CA backdates 2
		c.want(pending)
		end()
		time.Sleep(30 * time.Second)
		c.want(issuedState)
		if n := len(c.ca.Requests()); n != asked || len(c.audit.Lines(c.t, "issued")) != 1 {
			t.Errorf("the authority was asked %d times more, %d certificates", n-asked, len(c.audit.Lines(c.t, "issued")))
		}
	})
}

func TestCertificateThatIsTooOldForTheAPIServerIsReplaced(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		end := c.api.FailOn("update", requests, errAway)
		c.create(honest())
		time.Sleep(7 * time.Minute)
		end()
		time.Sleep(time.Minute)
		c.want(issuedState)
		if n := len(c.audit.Lines(c.t, "issued")); n != 3 || c.happened("undelivered") != 2 {
			t.Errorf("%d certificates in 8 minutes, %d undelivered", n, c.happened("undelivered"))
		}
	})
}

// What the API server finds wrong with one certificate is wrong with the next.
func TestCertificateThatTheAPIServerRefusesIsNotReplaced(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		c.api.FailOn("update", requests, apierrors.NewInvalid(schema.GroupKind{Kind: "PodCertificateRequest"}, "req-1", nil))
		c.create(honest())
		time.Sleep(15 * time.Minute)
		c.want(pending)
		if n := len(c.audit.Lines(c.t, "issued")); n != 1 || !strings.Contains(c.log.String(), "level=ERROR") {
			t.Errorf("%d certificates\n%s", n, c.log.String())
		}
	})
}

// It is not wrong if only our right to sign is missing, which the API server words alike.
func TestMissingRightToSignGivesNoRequestUp(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		end := c.api.FailOn("update", requests, apierrors.NewInvalid(schema.GroupKind{Kind: "PodCertificateRequest"}, "req-1", field.ErrorList{
			field.Forbidden(field.NewPath("spec", "signerName"), `User "ra" is not permitted to "sign"`),
		}))
		c.create(honest())
		time.Sleep(6 * time.Minute)
		c.want(pending)
		end()
		time.Sleep(6 * time.Minute)
		c.want(issuedState)
	})
}

// conflict makes the next update fail as if the request had changed, after what happened in
// between.
func (c *cluster) conflict(between func()) {
	once := true
	c.api.Also(func(call *kubetest.Call) error {
		if call.Verb != "update" || !once {
			return nil
		}
		once = false
		between()
		return apierrors.NewConflict(schema.GroupResource{Resource: requests}, "req-1", errors.New("changed"))
	})
}

func TestConflictIsLookedAtAgain(t *testing.T) {
	for name, s := range map[string]struct {
		between func(c *cluster, r *request)
		want    string
	}{
		"only its metadata changed": {func(c *cluster, r *request) { r.Annotations = map[string]string{"a": "b"}; c.update(r) }, issuedState},
		"another signed it": {func(c *cluster, r *request) {
			r.Status.Conditions = []metav1.Condition{{Type: "Failed", Reason: "Other", Status: metav1.ConditionTrue}}
			c.update(r)
		}, "Failed Other"},
		"it was made anew": {func(c *cluster, r *request) {
			c.erase("req-1")
			r.UID, r.Spec.PodUID, r.ResourceVersion = "another", "x", ""
			c.make(r)
		}, mismatch},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, nil, func(c *cluster) {
				c.conflict(func() { s.between(c, c.get("req-1")) })
				c.create(honest())
				time.Sleep(time.Minute)
				c.want(s.want)
				if n := len(c.audit.Lines(c.t, "issued")); n != 1 {
					t.Errorf("%d certificates", n)
				}
			})
		})
	}
}

func (c *cluster) update(r *request) { c.api.Put(r) }

func (c *cluster) erase(name string) { c.api.Remove(requests, "shop", name) }

func (c *cluster) make(r *request) { c.api.Put(r) }

// slowly leaves the authority one call in ten minutes, of which the first is spent.
func slowly(c *cluster) {
	c.ra.Authorities[0].Limits = ra.Limits{Rate: 1. / 600, Burst: 1}
}

func TestDeletedRequestLeavesTheQueue(t *testing.T) {
	inCluster(t, slowly, func(c *cluster) {
		c.create(honest())
		second := honest()
		second.Name, second.UID = "req-2", "2"
		c.create(second)
		if n := c.engine.Status()[0].Waiting; n != 1 || c.state("req-2") != pending {
			t.Fatalf("%d wait", n)
		}
		asked := len(c.ca.Requests())
		c.delete("req-2")
		if n := c.engine.Status()[0].Waiting; n != 0 || c.happened("pending") > 0 {
			t.Errorf("%d wait for a request that is gone: %v", n, c.events)
		}
		time.Sleep(time.Hour)
		if n := len(c.ca.Requests()); n != asked {
			t.Errorf("the authority was asked %d times for it", n-asked)
		}
	})
}

func TestLeaderThatStopsWritesNothingAndTheNextTermGoesOn(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		c.create(honest()) // the backdating is known now
		c.want(issuedState)
		c.ca.Always(catest.Fault{Delay: 10 * time.Second})
		second := honest()
		second.Name, second.UID = "req-2", "2"
		c.create(second)
		asked := len(c.ca.Requests())
		c.stop()
		if err := c.door.Ready(); err == nil {
			t.Error("ready, and it does not run")
		}
		time.Sleep(20 * time.Second)
		if c.state("req-2") != pending || c.tally(&c.writes) != 1 {
			t.Errorf("%s after the end of its term", c.state("req-2"))
		}
		c.run()
		synctest.Wait()
		if c.state("req-2") != issuedState || len(c.ca.Requests()) != asked {
			t.Errorf("%s, asked %d times", c.state("req-2"), len(c.ca.Requests())-asked+1)
		}
	})
}

func TestAPIServerThatIsAwayAtTheStart(t *testing.T) {
	var end, endWatch func()
	inCluster(t, func(c *cluster) {
		end, endWatch = c.api.FailOn("list", requests, errAway), c.api.FailOn("watch", "", errAway)
		c.make(honest())
	}, func(c *cluster) {
		if err := c.door.Ready(); err == nil {
			t.Error("ready, and nothing is known")
		}
		end()
		endWatch()
		time.Sleep(2 * time.Minute)
		c.want(issuedState)
		if err := c.door.Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestChangedPolicyIsAskedAgain(t *testing.T) {
	inCluster(t, slowly, func(c *cluster) {
		c.create(honest())
		second := honest()
		second.Name, second.UID = "req-2", "2"
		c.create(second)
		changed := rule()
		changed.Names.SPIFFEID = "spiffe://example.org/pod/{pod}"
		if err := c.engine.SetPolicy(ratest.Policy(t, changed)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := c.state("req-2"); got != issuedState {
			t.Fatalf("%s\n%s", got, c.log.String())
		}
		if names := issuedTo(t, c.get("req-2")); names[0] != "spiffe://example.org/pod/web-0" {
			t.Errorf("issued to %q", names)
		}
	})
}

// A list from an API server's cache may show requests as they were before the last leader served
// them, and each of these would cost a certificate.
func TestFirstListIsTheLatest(t *testing.T) {
	var versions []string
	inCluster(t, func(c *cluster) {
		c.api.Also(func(call *kubetest.Call) error {
			switch {
			case call.Asks("sendInitialEvents") != "": // a stream begins with the latest anyway
				return apierrors.NewBadRequest("no streams of lists")
			case call.Verb == "list":
				versions = append(versions, call.Asks("resourceVersion"))
			}
			return nil
		})
	}, func(c *cluster) {
		synctest.Wait()
		if !slices.Equal(versions, []string{""}) {
			t.Errorf("versions %q are listed", versions)
		}
	})
}

// A thousand pods, and an account that may not write: that must not cost a thousand
// certificates, nor the pods their places.
func TestCertificatesAreNotAskedForThatCannotBeDelivered(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	const pods = 1000
	var end func()
	inCluster(t, func(c *cluster) {
		c.ra.Authorities[0].Limits = ra.Limits{Rate: 7, Burst: 1}
		c.crowd()
		end = c.api.FailOn("update", requests, forbidden())
		first := time.Now().Add(-10 * time.Minute)
		for n := range pods {
			c.make(of(n, first, first.Add(time.Duration(n)*time.Millisecond)))
		}
	}, func(c *cluster) {
		time.Sleep(4 * time.Minute)
		if n := len(c.audit.Lines(c.t, "issued")); n > 30 {
			t.Errorf("%d certificates in 4 minutes, and none could be delivered", n)
		}
		if shut := c.door.Shut(); len(shut) != 1 || shut[0].Signer != signer || !shut[0].Forbidden {
			t.Errorf("the status is %+v", shut)
		}
		end()
		time.Sleep(4 * time.Minute)
		if n := c.happened("issued"); n != pods {
			t.Errorf("%v", c.events)
		}
		if n := len(c.ca.Requests()); n > pods+50 {
			t.Errorf("%d calls for %d pods", n, pods)
		}
	})
}

// An API server that returns another spec than before must not cause a refusal.
func TestRequestThatLooksOtherwiseLiveIsNotRefused(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		c.api.Also(func(call *kubetest.Call) error {
			if call.Verb == "get" && call.Resource == requests {
				call.Reply = honest()
			}
			return nil
		})
		r := honest()
		r.Spec.PodUID = "x"
		c.create(r)
		time.Sleep(time.Minute)
		c.want(pending)
	})
}

// long is an issuer whose chains are too long.
type long struct{ *ra.Engine }

func (l long) Issue(ctx context.Context, o *ra.Order) (ra.Certificate, error) {
	cert, err := l.Engine.Issue(ctx, o)
	cert.Chain = slices.Repeat(cert.Chain, 300)
	return cert, err
}

func TestChainThatIsTooLongIsNotSent(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		c.stop()
		c.conf.Issuer = long{c.engine}
		door, err := podcert.New(c.conf)
		if err != nil {
			t.Fatal(err)
		}
		c.door = door
		c.run()
		c.create(honest())
		c.want(pending)
		if !strings.Contains(c.log.String(), "102400") || c.happened("undelivered") != 1 {
			t.Errorf("%v\n%s", c.events, c.log.String())
		}
	})
}
