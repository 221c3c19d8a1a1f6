package csr_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/kubernetes/signing/csr"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func byHand(c *cluster) { c.conf.Signers[0].Approve = false }

func TestGrantedRequestIsApprovedAndSigned(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		r := honest()
		seconds := int32(3600)
		r.Spec.ExpirationSeconds = &seconds
		c.create(r)
		c.want("Approved issued")
		certs, err := pki.ParseCertificates(c.get("req-1").Status.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		leaf := certs[0]
		if len(certs) != 2 || len(leaf.URIs) != 1 || leaf.URIs[0].String() != spiffe || leaf.NotAfter.After(time.Now().Add(time.Hour)) {
			t.Errorf("%d certificates, URIs %v, until %s", len(certs), leaf.URIs, leaf.NotAfter)
		}
		inter := x509.NewCertPool()
		inter.AddCert(certs[1])
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: c.ca.Bundle().Pool(), Intermediates: inter, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			t.Error(err)
		}
		if c.asked() != 1 || c.happened("issued") != 1 || c.happened("approved") != 1 {
			t.Errorf("%d requests, events %v", c.asked(), c.events)
		}
		for _, part := range []string{`"kind":"service_account"`, `"pod_uid":"pod-uid"`, `"node":"node-1"`, `"service_account_uid":"account-uid"`, `"verified":"certificate signing request"`} {
			if !strings.Contains(c.audit.String(), part) {
				t.Errorf("the audit log lacks %s: %s", part, c.audit.String())
			}
		}
		pass(time.Hour)
		if c.asked() != 1 {
			t.Errorf("%d requests after an hour", c.asked())
		}
	})
}

// A status keeps the metadata that it comes with.
func TestIssuingLeavesMetadataAsItIs(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		r := honest()
		r.Annotations, r.Labels, r.Finalizers = map[string]string{"a": "b"}, map[string]string{"c": "d"}, []string{"example.org/keep"}
		c.create(r)
		pass(time.Minute)
		c.want("Approved issued")
		got := c.get(r.Name)
		if got.Annotations["a"] != "b" || got.Labels["c"] != "d" || len(got.Finalizers) != 1 || len(got.Spec.Groups) != len(r.Spec.Groups) {
			t.Errorf("the request is now %+v", got)
		}
	})
}

func TestRequestWaitsForItsApproval(t *testing.T) {
	inCluster(t, byHand, func(c *cluster) {
		c.create(honest())
		pass(time.Hour)
		c.want("pending")
		if c.reads() > 0 {
			t.Errorf("%d reads for a request that is not approved", c.reads())
		}
		c.say("req-1", certificatesv1.CertificateApproved)
		c.want("Approved issued")
		if c.happened("approved") != 0 {
			t.Error("counted as ours to approve")
		}
	})
}

func TestOtherRequestsAreLeftAlone(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		foreign, denied, failed, done := honest(), honest(), honest(), honest()
		foreign.Name, foreign.UID, foreign.Spec.SignerName = "foreign", "2", other
		denied.Name, denied.UID = "denied", "3"
		denied.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: "Denied", Status: "True", Reason: "Admin"}}
		failed.Name, failed.UID = "failed", "4"
		failed.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: "Approved", Status: "True"}, {Type: "Failed", Status: "True", Reason: "Other"}}
		done.Name, done.UID = "done", "5"
		done.Status.Certificate = []byte("x")
		c.create(foreign, denied, failed, done)
		pass(time.Hour)
		if c.tally(&c.writes) > 0 || c.reads() > 0 || c.asked() > 0 {
			t.Errorf("%d writes, %d reads, %d asked", c.tally(&c.writes), c.reads(), c.asked())
		}
	})
}

func TestNodesAndUsersGetTheirNames(t *testing.T) {
	for name, test := range map[string]struct {
		user, group, dns string
	}{
		"node": {"system:node:node-1", "system:nodes", "node-1.nodes.example.org"},
		"user": {"jane", "developers", "jane.example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, nil, func(c *cluster) {
				r := honest()
				r.Spec.Username, r.Spec.Groups, r.Spec.UID, r.Spec.Extra = test.user, []string{test.group, "system:authenticated"}, "", nil
				r.Spec.Request = csrOf(pki.ECDSAP256, &x509.CertificateRequest{DNSNames: []string{test.dns}})
				c.create(r)
				c.want("Approved issued")
			})
		})
	}
}

// Whatever is not for ever leaves the request pending, and it is signed when that is over.
func TestTroubleLeavesRequestPending(t *testing.T) {
	away := errors.New("connection refused")
	fault := func(err error) func(c *cluster) func() {
		return func(c *cluster) func() {
			c.ca.Always(catest.Fault{Err: err})
			return func() { c.ca.Always(catest.Fault{}) }
		}
	}
	for name, test := range map[string]struct {
		begin func(c *cluster) (end func())
		state string
	}{
		"CA away":       {fault(ca.ErrUnavailable), "Approved"},
		"CA's quota":    {fault(ca.ErrRateLimited), "Approved"},
		"CA refuses":    {fault(ca.ErrDenied), "Approved"},
		"CA: invalid":   {fault(ca.ErrInvalid), "Approved"},
		"unknown error": {fault(errors.New("?")), "Approved"},
		"CA's reply":    {func(c *cluster) func() { c.ca.Next(1, catest.Fault{Break: catest.WrongKey}); return func() {} }, "Approved issued"},
		"reading":       {func(c *cluster) func() { return c.api.FailOn("get", requests, away) }, "pending"},
		"accounts":      {func(c *cluster) func() { return c.api.FailOn("get", "serviceaccounts", away) }, "pending"},
		"pods": {func(c *cluster) func() {
			return c.api.FailOn("get", "pods", apierrors.NewForbidden(schema.GroupResource{}, "web-0", away))
		}, "pending"},
		"writing": {func(c *cluster) func() { return c.api.FailOn("update", requests, away) }, "pending"},
		"account gone": {func(c *cluster) func() {
			account := kubetest.Get[corev1.ServiceAccount](c.api, "serviceaccounts", "shop", "web")
			c.api.Remove("serviceaccounts", "shop", "web")
			return func() { c.api.Put(account) }
		}, "pending"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, nil, func(c *cluster) {
				end := test.begin(c)
				c.create(honest())
				pass(10 * time.Minute)
				c.want(test.state)
				end()
				pass(15 * time.Minute)
				c.want("Approved issued")
				if c.happened("failed")+c.happened("denied") > 0 || c.happened("pending") == 0 {
					t.Errorf("events %v", c.events)
				}
			})
		})
	}
}

func TestCertificateIsWrittenAgainNotMadeAgain(t *testing.T) {
	for name, err := range map[string]error{
		"away":     errors.New("connection refused"),
		"conflict": apierrors.NewConflict(schema.GroupResource{}, "req-1", nil),
		"timeout":  apierrors.NewTimeoutError("slow", 1),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, byHand, func(c *cluster) {
				end := c.api.FailOn("update", requests, err)
				c.create(honest())
				c.say("req-1", certificatesv1.CertificateApproved)
				pass(10 * time.Minute)
				c.want("Approved")
				end()
				pass(time.Minute)
				c.want("Approved issued")
				if c.asked() != 1 {
					t.Errorf("the CA was asked %d times", c.asked())
				}
			})
		})
	}
}

// A webhook or a policy of the cluster's refuses the status, and others go on to edit the object.
func TestCertificateThatIsRefusedIsNotMadeAgain(t *testing.T) {
	inCluster(t, byHand, func(c *cluster) {
		end := c.api.FailOn("update", requests, apierrors.NewInvalid(schema.GroupKind{}, "req-1", nil))
		c.create(honest())
		c.say("req-1", certificatesv1.CertificateApproved)
		for i := range 5 {
			pass(10 * time.Minute)
			edited := c.get("req-1")
			edited.Labels = map[string]string{"a": fmt.Sprint(i)}
			c.api.Put(edited)
		}
		end()
		pass(time.Minute)
		c.want("Approved issued")
		if c.asked() != 1 || !strings.Contains(c.log.String(), "cannot write the certificate") {
			t.Errorf("the CA was asked %d times; the log: %s", c.asked(), c.log.String())
		}
	})
}

// Another client edits the object between our read and our write.
func TestEditedRequestGetsItsCertificate(t *testing.T) {
	inCluster(t, byHand, func(c *cluster) {
		c.ca.Always(catest.Fault{Delay: 20 * time.Second})
		c.create(honest())
		c.say("req-1", certificatesv1.CertificateApproved)
		edited := c.get("req-1")
		edited.Labels = map[string]string{"a": "b"}
		c.api.Put(edited)
		pass(2 * time.Minute)
		c.want("Approved issued")
		if c.get("req-1").Labels["a"] != "b" || c.asked() != 1 {
			t.Errorf("labels %v, asked %d times", c.get("req-1").Labels, c.asked())
		}
	})
}

func TestRequestThatGoesMeanwhileGetsNothing(t *testing.T) {
	for name, end := range map[string]func(c *cluster){
		"failed":  func(c *cluster) { c.say("req-1", certificatesv1.CertificateFailed) },
		"deleted": func(c *cluster) { c.api.Remove(requests, "", "req-1") },
		"made anew": func(c *cluster) {
			c.api.Remove(requests, "", "req-1")
			r := honest()
			r.UID = "another"
			c.create(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, byHand, func(c *cluster) {
				c.ca.Always(catest.Fault{Delay: 20 * time.Second})
				c.create(honest())
				c.say("req-1", certificatesv1.CertificateApproved)
				pass(time.Second)
				end(c)
				pass(10 * time.Minute)
				if c.tally(&c.writes) > 0 || c.happened("issued") > 0 {
					t.Errorf("%d writes, events %v", c.tally(&c.writes), c.events)
				}
			})
		})
	}
}

// slowAnswers have the watch be faster than the answers to writes.
func slowAnswers(c *cluster) {
	c.api.After = func(call *kubetest.Call) {
		if call.Verb == "update" {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// Our own write comes back by the watch, which ends the work on the request.
func TestOutcomeIsCountedAlthoughTheWatchIsFaster(t *testing.T) {
	for result, change := range map[string]func(r *request){
		"issued": func(*request) {},
		"denied": func(r *request) { r.Spec.Username = "joe" },
		"failed": func(r *request) {
			r.Spec.Request = csrOf(pki.ECDSAP384, nil)
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Reason: "Admin"}}
		},
	} {
		t.Run(result, func(t *testing.T) {
			inCluster(t, slowAnswers, func(c *cluster) {
				r := honest()
				change(r)
				c.create(r)
				pass(time.Minute)
				if c.happened(result) != 1 || result != "issued" && !strings.Contains(c.log.String(), "request refused") {
					t.Errorf("events %v; the log: %s", c.events, c.log.String())
				}
			})
		})
	}
}

// An informer can be stale: its watch is dead here.
func TestStaleInformerHasNoWord(t *testing.T) {
	for name, change := range map[string]func(c *cluster, r *request){
		"failed":     func(c *cluster, _ *request) { c.say("req-1", certificatesv1.CertificateFailed) },
		"made anew":  func(_ *cluster, r *request) { r.UID = "another" },
		"unapproved": func(_ *cluster, r *request) { r.Status.Conditions = nil },
	} {
		for _, when := range []time.Duration{0, 10 * time.Second} { // before the door looks, and while the CA works
			t.Run(fmt.Sprint(name, " after ", when), func(t *testing.T) {
				var release func()
				inCluster(t, func(c *cluster) {
					byHand(c)
					c.api.Before = func(call *kubetest.Call) error {
						switch {
						case call.Asks("sendInitialEvents") != "": // it is asked for a list then
							return apierrors.NewBadRequest("no streams of lists")
						case call.Verb == "watch":
							<-call.Context.Done()
						}
						return c.admit(call)
					}
					release = c.api.FailOn("get", requests, errors.New("connection refused"))
					c.create(honest())
					c.say("req-1", certificatesv1.CertificateApproved)
					c.ca.Always(catest.Fault{Delay: 20 * time.Second})
				}, func(c *cluster) {
					if when > 0 {
						release()
						pass(when)
					}
					if name == "failed" {
						change(c, nil)
					} else {
						r := c.get("req-1")
						change(c, r)
						c.api.Put(r)
					}
					release()
					pass(10 * time.Minute)
					if got := c.get("req-1"); len(got.Status.Certificate) > 0 && (name != "unapproved" || when == 0) || c.tally(&c.writes) > 1 {
						t.Errorf("it has a certificate: %s", c.log.String())
					}
					if when == 0 && c.asked() > 0 {
						t.Error("the CA was asked")
					}
				})
			})
		}
	}
}

// The API server has written the certificate, and its reply was lost.
func TestWriteWhoseReplyIsLostIsDelivered(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		c.api.Also(func(call *kubetest.Call) error {
			if call.Verb != "update" || call.Subresource != "status" {
				return nil
			}
			c.api.Put(call.Object)
			return apierrors.NewInternalError(errors.New("the connection is cut"))
		})
		c.create(honest())
		pass(time.Minute)
		c.want("Approved issued")
		if lines := c.audit.Lines(t, "withheld"); len(lines) > 0 || c.happened("issued") != 1 || c.happened("undelivered") > 0 || c.asked() != 1 {
			t.Errorf("%v, %v", lines, c.events)
		}
	})
}

// Between two terms of a leader nothing is lost, and a CA that recognizes repeats makes one.
func TestNextTermGoesOn(t *testing.T) {
	inCluster(t, nil, func(c *cluster) {
		c.ca.Next(1, catest.Fault{Hang: true})
		c.create(honest())
		c.stop()
		if c.door.Ready() == nil {
			t.Error("ready after its end")
		}
		c.run()
		pass(5 * time.Minute)
		c.want("Approved issued")
		if all := c.ca.Requests(); len(all) > 2 || all[0].ID != all[len(all)-1].ID {
			t.Errorf("%d requests", len(all))
		}
	})
}

func TestChangedPolicyIsAskedAgain(t *testing.T) {
	asked := 0
	inCluster(t, func(c *cluster) {
		c.conf.Issuer = issuing{c.engine, func(ctx context.Context, o *ra.Order) (ra.Certificate, error) {
			if asked++; asked == 1 {
				changed := rules()
				changed[0].Name = "anew"
				if err := c.engine.SetPolicy(ratest.Policy(t, changed...)); err != nil {
					t.Error(err)
				}
			}
			return c.engine.Issue(ctx, o)
		}}
	}, func(c *cluster) {
		c.create(honest())
		c.want("Approved")
		pass(time.Minute)
		c.want("Approved issued")
		if asked != 2 || c.asked() != 1 {
			t.Errorf("the engine was asked %d times, the CA %d times", asked, c.asked())
		}
	})
}

func TestManyRequestsAreAllSigned(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inCluster(t, nil, func(c *cluster) {
		for i := range 300 {
			r := c.account(i)
			c.create(r)
		}
		pass(time.Minute)
		if c.happened("issued") != 300 || c.asked() != 300 {
			t.Errorf("events %v, %d asked", c.events, c.asked())
		}
	})
}

// Thousands of requests of one holder have to wait for each other, for as long as they live.
func TestWaitingRequestsCostFewCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	const many = 50
	inCluster(t, func(c *cluster) {
		c.conf.Issuer = issuing{c.engine, func(context.Context, *ra.Order) (ra.Certificate, error) {
			err := ca.Errorf(ca.RateLimited, "8 requests of this holder wait already")
			err.RetryAfter = 5 * time.Second
			return ra.Certificate{}, err
		}}
	}, func(c *cluster) {
		for i := range many {
			r := honest()
			r.Name, r.UID = fmt.Sprint("req-", i), types.UID(fmt.Sprint(i))
			c.create(r)
		}
		pass(10 * time.Minute)
		before := c.reads()
		pass(10 * time.Minute)
		if each := (c.reads() - before) / many; each > 3*12 {
			t.Errorf("each cost %d reads in 10 minutes", each)
		}
	})
}

// A list from an API server's cache may show requests as they were before the last leader served
// them, and each of these would cost a certificate.
func TestFirstListIsTheLatest(t *testing.T) {
	var versions []string
	inCluster(t, func(c *cluster) {
		c.api.Before = func(call *kubetest.Call) error {
			switch {
			case call.Asks("sendInitialEvents") != "": // a stream begins with the latest anyway
				return apierrors.NewBadRequest("no streams of lists")
			case call.Verb == "list":
				versions = append(versions, call.Asks("resourceVersion"))
			}
			return nil
		}
	}, func(c *cluster) {
		synctest.Wait()
		if !slices.Equal(versions, []string{""}) {
			t.Errorf("versions %q are listed", versions)
		}
	})
}

func TestWrongSettingsAreRefused(t *testing.T) {
	good := csr.Config{
		Config: signing.Config{Cluster: "home", Issuer: issuing{}}, Client: kubetest.NewFake().Client(),
		Signers: []csr.Signer{{Name: signer}},
	}
	for want, change := range map[string]func(*csr.Config){
		"Cluster and Issuer are required": func(c *csr.Config) { c.Cluster = "" },
		"reserved for Kubernetes":         func(c *csr.Config) { c.Signers = []csr.Signer{{Name: "kubernetes.io/kube-apiserver-client"}} },
		"is there twice":                  func(c *csr.Config) { c.Signers = []csr.Signer{{Name: signer}, {Name: signer}} },
	} {
		cfg := good
		change(&cfg)
		if _, err := csr.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := csr.New(good); err != nil {
		t.Error(err)
	}
}

// A CA whose clock is ahead: also a request that has waited for long gets the first certificate.
func TestCertificateIsNotWrittenBeforeItBegins(t *testing.T) {
	const ahead = 4 * time.Minute
	for name, waited := range map[string]time.Duration{"new": 0, "old": 30 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, byHand, func(c *cluster) {
				c.ca.Always(catest.Fault{Break: func(d *catest.Draft) { d.Leaf.NotBefore = time.Now().Add(ahead) }})
				c.create(honest())
				pass(waited)
				c.say("req-1", certificatesv1.CertificateApproved)
				pass(ahead - time.Second)
				c.want("Approved")
				pass(2 * time.Minute)
				c.want("Approved issued")
				if c.asked() != 1 {
					t.Errorf("the CA was asked %d times", c.asked())
				}
			})
		})
	}
}
