// Package policy implements "policy test", which shows what a caller would be granted by the rules of
// a configuration. Package program adds its [Command].
package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/ra"
)

// Command returns "policy", for the configuration that the flags name.
func Command(in daemon.Flags[*config.Config]) *cobra.Command {
	return cli.Group("policy", "Try the rules of a configuration", testCommand(in))
}

// asked is who asks, in "policy test".
type asked struct {
	kind, signer, requests, certSigner, authority string
	subject                                       ra.Subject
}

// someUID stands for the UID of an object: rules do not match UIDs.
const someUID = "00000000-0000-0000-0000-000000000000"

func testCommand(in daemon.Flags[*config.Config]) *cobra.Command {
	var a asked
	cmd := &cobra.Command{
		Use: "test", Short: "Show what a caller would be granted, and why", Args: cli.NoArgs,
		Long: `Show what a caller would be granted, and why: which rules do not match, which one
does, and the names it gives. Nothing is started, connected to or issued.

The exit code is 0 if a certificate would be granted, 1 if it would be denied, and 2 if
a setting or flag is wrong.`,
		Example: "  countersign-ra policy test --config ra.yaml \\\n    --namespace shop --service-account web --pod web-0",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := in.Read()
			if err != nil {
				return err
			}
			door, err := a.complete(c)
			if err != nil {
				return cli.Wrong(err)
			}
			decision := c.Policy().Try(a.subject, door)
			if _, err := fmt.Fprint(cmd.OutOrStdout(), decision.Explain()); err != nil {
				return err
			}
			if decision.Denied != "" {
				return errors.New("the certificate would be denied")
			}
			return nil
		},
	}
	in.Add(cmd)
	a.addFlags(cmd)
	return cmd
}

func (a *asked) addFlags(cmd *cobra.Command) {
	s, flag := &a.subject, cmd.Flags().StringVar
	flag(&a.kind, "kind", "", "`kind` of caller: pod, service_account, node, user or namespace (default: by the flags below)")
	flag(&a.signer, "signer", "", "signer `name` of the request (default: the only one)")
	flag(&a.requests, "requests", "", "`kind` of request: pod-certificates, certificate-requests, istio or cert-manager (default: by the caller's kind)")
	flag(&a.certSigner, "cert-signer", "", "`value` of CertSigner in a request of istio (default: none)")
	flag(&a.authority, "authority", "", "`name` of the authority of a request of cert-manager (default: the only one)")
	flag(&s.Cluster, "cluster", "", "`id` of the caller's cluster (default: the home cluster)")
	flag(&s.Namespace, "namespace", "", "`name` of the caller's namespace")
	flag(&s.ServiceAccount, "service-account", "", "`name` of the caller's service account")
	flag(&s.ServiceAccountUID, "service-account-uid", someUID, "`uid` of the service account")
	flag(&s.Pod, "pod", "", "`name` of the caller's pod")
	flag(&s.PodUID, "pod-uid", someUID, "`uid` of the pod")
	flag(&s.Node, "node", "", "`name` of the node: the caller's, or the caller")
	flag(&s.NodeUID, "node-uid", someUID, "`uid` of the node")
	flag(&s.User, "user", "", "`name` of the user, if the caller is none of these")
	cli.Complete(cmd, "kind", "pod", "service_account", "node", "user", "namespace")
	cli.Complete(cmd, "requests", config.PodCertificateRequests, config.CertificateSigningRequests, config.IstioRequests, config.CertManagerRequests)
}

// complete fills in what the flags leave open, and returns the door.
func (a *asked) complete(c *config.Config) (door string, err error) {
	s := &a.subject
	if s.Cluster == "" {
		s.Cluster = c.Cluster.ID
	}
	if s.Kind = ra.Kind(a.kind); a.kind == "" {
		s.Kind = a.guess()
	}
	switch s.Kind {
	case ra.Pod, ra.ServiceAccount, ra.Node, ra.User, ra.Namespace:
	default:
		return "", fmt.Errorf("--kind is %.256q: pod, service_account, node, user or namespace is allowed", a.kind)
	}
	// What the caller has not got has no UID either.
	for name, uid := range map[*string]*string{&s.Pod: &s.PodUID, &s.ServiceAccount: &s.ServiceAccountUID, &s.Node: &s.NodeUID} {
		if *name == "" {
			*uid = ""
		}
	}
	return a.door(c)
}

func (a *asked) guess() ra.Kind {
	switch s := a.subject; {
	case s.Pod != "":
		return ra.Pod
	case s.ServiceAccount != "":
		return ra.ServiceAccount
	case s.Node != "":
		return ra.Node
	case s.User != "":
		return ra.User
	case a.requests == config.CertManagerRequests:
		return ra.Namespace
	}
	return ra.Pod
}

func (a *asked) door(c *config.Config) (string, error) {
	if a.subject.Kind == ra.Namespace {
		door := c.CertManager.Door(a.authority)
		if door == "" {
			return "", fmt.Errorf("--authority is %.256q: name one of cert_manager.authorities", a.authority)
		}
		return door, nil
	}
	if a.requests == config.IstioRequests || a.certSigner != "" || a.requests+a.signer == "" && len(c.Signers) == 0 {
		door, ok := c.IstioDoor(a.certSigner)
		if !ok {
			return "", fmt.Errorf("--cert-signer is %.256q: enabled are %s", a.certSigner, doorNames(c))
		}
		return door, nil
	}
	if len(c.Signers) == 0 {
		return "", fmt.Errorf("--signer and --requests are %.256q and %.256q: enabled are %s", a.signer, a.requests, doorNames(c))
	}
	if a.signer == "" {
		if len(c.Signers) != 1 {
			return "", errors.New("--signer is not set: there is not just one signer, name one")
		}
		a.signer = c.Signers[0].Name
	}
	switch {
	case a.requests == "" && a.subject.Kind == ra.Pod:
		a.requests = config.PodCertificateRequests
	case a.requests == "":
		a.requests = config.CertificateSigningRequests
	}
	door := c.Door(a.signer, a.requests)
	if door == "" {
		return "", fmt.Errorf("--signer and --requests are %.256q and %.256q: enabled are %s", a.signer, a.requests, doorNames(c))
	}
	return door, nil
}

func doorNames(c *config.Config) string {
	var known []string
	for _, d := range c.CallersDoors() {
		known = append(known, d.Name)
	}
	return strings.Join(known, ", ")
}
