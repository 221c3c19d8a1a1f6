package awspca

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestWrongSettingsAreExplained(t *testing.T) {
	with := func(change func(*Settings)) Settings { s := theSettings(); change(&s); return s }
	for says, settings := range map[string]Settings{
		`ca_arn is "": write arn:aws:acm-pca:REGION`:          {},
		`ca_arn is "arn:aws:acm:`:                             {CAARN: "arn:aws:acm:eu-central-1:123456789012:certificate/1"},
		`ca_arn is "arn:aws:acm-pca:evil.example/:1`:          {CAARN: "arn:aws:acm-pca:evil.example/:123456789012:certificate-authority/1"},
		`template is "arn:aws:acm-pca:::template/x"`:          with(func(s *Settings) { s.Template = "arn:aws:acm-pca:::template/x" }),
		`template is "RootCACertificate/V1"`:                  with(func(s *Settings) { s.Template = "RootCACertificate/V1" }),
		`signing_algorithm is "SHA1": want one of`:            with(func(s *Settings) { s.SigningAlgorithm = "SHA1" }),
		`roots_interval is 1s`:                                with(func(s *Settings) { s.RootsInterval = time.Second }),
		`credentials is "imds": want chain, keys or token`:    with(func(s *Settings) { s.Credentials = "imds" }),
		`exactly if there is an exchange block`:               with(func(s *Settings) { s.Credentials = Token }),
		`are for credentials keys; credentials is "token"`:    with(func(s *Settings) { s.Exchange = &Exchange{RoleARN: theRole} }),
		`credentials keys needs the ID of a key`:              with(func(s *Settings) { s.SecretAccessKey = "" }),
		`config_file and profile are for credentials chain`:   with(func(s *Settings) { s.Profile = "x" }),
		`assume_role.role_arn is "signer"`:                    with(func(s *Settings) { s.AssumeRole = &AssumeRole{RoleARN: "signer"} }),
		`assume_role.session_name is "a b"`:                   with(func(s *Settings) { s.AssumeRole = &AssumeRole{RoleARN: theRole, SessionName: "a b"} }),
		`exchange.role_arn is "": write arn:aws:iam::ACCOUNT`: {CAARN: theARN, Exchange: &Exchange{}},
	} {
		_, err := Open(t.Context(), settings)
		mustBe(t, err, ca.ErrInvalid, says)
	}
	for _, arn := range []string{"arn:aws-cn:acm-pca:cn-north-1:123456789012:certificate-authority/1-a", "arn:aws-us-gov:acm-pca:us-gov-west-1:123456789012:certificate-authority/1"} {
		must(t, Settings{CAARN: arn}.Validate())
	}
}

func TestOnlineCheckFindsWhatKeepsTheCAFromSigning(t *testing.T) {
	s := newService(pki.ECDSAP256)
	s.listen(t)
	settings := s.socket(t, theSettings())
	says := func() (all []string) {
		for _, found := range settings.ValidateOnline(t.Context()) {
			mustHide(t, found.Summary)
			all = append(all, found.Summary)
		}
		return all
	}
	if found := says(); len(found) > 0 {
		t.Errorf("all is well, but %q", found)
	}
	s.set(func() { s.state, s.usage = "DISABLED", "SHORT_LIVED_CERTIFICATE" })
	settings.Template = csrTemplate
	if found := strings.Join(says(), "\n"); !strings.Contains(found, "is DISABLED") || !strings.Contains(found, "7 days") || !strings.Contains(found, "a kubelet's") {
		t.Errorf("it found %q", found)
	}
	settings.Template = ""
	s.next("DescribeCertificateAuthority", refuse(400, "AccessDeniedException", "may not"))
	if found := says(); len(found) > 0 {
		t.Errorf("a CA that may not be described: %q", found)
	}
	s.next("GetCertificateAuthorityCertificate", refuse(400, "ResourceNotFoundException", "no such CA"))
	if found := says(); len(found) != 1 || !strings.Contains(found[0], "no such CA") {
		t.Errorf("a CA that is not there: %q", found)
	}
	if s.count("IssueCertificate") > 0 {
		t.Error("something was signed")
	}
}
