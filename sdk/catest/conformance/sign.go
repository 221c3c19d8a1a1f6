package conformance

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/sdk/pki"
)

func signChecks() []Check {
	good, read := []string{"SET-06", "SIGN-01"}, []string{"SIGN-01", "SIGN-02"}
	return []Check{
		{"SIGN-01", Sign, "It signs a valid request.", "That is its purpose.", []string{"SET-06"}, goodIsSigned},
		{"SIGN-02", Sign, "The chain contains only PEM blocks CERTIFICATE.", "A chain that cannot be parsed is rejected as a whole.", good, chainIsPEM},
		{"SIGN-03", Sign, "The chain has at most 10 certificates.", "Each peer parses all of them for each connection.", read, chainIsShort},
		{"SIGN-04", Sign, "The first certificate has the key of the request.", "The workload has no other key.", read, leafHasKey},
		{"SIGN-05", Sign, "The leaf is not a CA certificate.", "Its holder could issue certificates for any name.", read, leafIsNoCA},
		{"SIGN-06", Sign, "The leaf's key usage includes digital signature, or is absent.", "TLS needs it.", read, leafMaySign},
		{"SIGN-07", Sign, "The leaf's extended key usage includes TLS server or client authentication, or is absent.", "Otherwise handshakes fail.", read, leafFitsTLS},
		{"SIGN-08", Sign, "The leaf has the requested names, as closely as the kit declares.", "A certificate with another name is for someone else.", read, namesAsAsked},
		{"SIGN-09", Sign, "The chain does not contain a root.", "Peers trust only the roots they already have.", read, noRootInChain},
		{"SIGN-10", Sign, "No signature in the chain uses MD5 or SHA-1.", "Both can be forged, and TLS stacks reject them.", read, signaturesAreStrong},
		{"SIGN-11", Sign, "Each certificate in the chain is signed by the next.", "TLS sends them in this order (RFC 8446, section 4.4.2).", []string{"SIGN-02", "SIGN-10"}, chainIsInOrder},
		{"SIGN-12", Sign, "Every certificate above the leaf may sign certificates.", "Peers reject a chain with one that may not.", read, aboveAreCAs},
		{"SIGN-13", Sign, "The leaf has version 3 and no critical extension unknown to Go.", "Peers must reject an unknown critical extension.", read, extensionsAreKnown},
		{"SIGN-14", Sign, "The reply contains valid roots, or the provider has the ability to return them.", "Without a root, nothing can be verified.", good, rootsAreThere},
		{"SIGN-15", Sign, "The chain leads to one of the roots.", "Nothing unverified is served.", []string{"SIGN-02", "SIGN-10", "SIGN-11", "SIGN-12", "SIGN-13", "SIGN-14"}, chainVerifies},
		{"SIGN-16", Sign, "The leaf is valid now, or in at most 5 minutes.", "One that begins later is not usable yet.", read, beginsNow},
		{"SIGN-17", Sign, "The leaf ends after it begins, and in the future.", "An expired certificate is useless.", read, endsLater},
		{"SIGN-18", Sign, "The leaf ends at most 5 minutes later than requested, unless the kit declares a fixed lifetime.", "A caller that requests an hour means an hour.", read, livesAsAsked},
		{"SIGN-19", Sign, "The leaf ends no later than its issuer's certificate.", "It would not verify after that.", []string{"SIGN-02", "SIGN-14", "SIGN-17"}, endsWithItsIssuers},
		{"SIGN-20", Sign, "A new request gets a certificate for its own key, even with identical names.", "The key of the previous request is gone.", []string{"SIGN-04"}, newRequestNewCertificate},
		{"SIGN-21", Sign, "Two certificates have different serial numbers.", "A revocation names a certificate by its serial number.", []string{"SIGN-04", "SIGN-20"}, serialsDiffer},
		{"SIGN-22", Sign, "For a request without a lifetime, the CA chooses one.", "The lifetime is optional.", []string{"SIGN-02", "SIGN-17"}, lifetimeIsOptional},
		{"SIGN-23", Sign, "It signs each type of key, or rejects it as invalid.", "After any other error, the host retries forever.", []string{"SIGN-04", "SIGN-20"}, eachKindOfKey},
		{"SIGN-24", Sign, "A repeated request gets a certificate for its key.", "The host repeats a request whose reply it never got.", []string{"SIGN-04"}, repeatIsServed},
		{"SIGN-25", Sign, "A request for a CA certificate does not get one.", "The content of a CSR proves nothing about its sender's rights.", []string{"SIGN-05"}, wishIsNoCommand},
		{"SIGN-26", Sign, "It does not modify the request.", "The host sends the same bytes again when it retries.", []string{"SIGN-01"}, requestStays},
		{"SIGN-27", Sign, "It does not modify a reply that it has returned.", "The host keeps it without a copy.", read, replyStays},
	}
}

func goodIsSigned(_ context.Context, s *Session) error {
	_, err := s.reply()
	return err
}

// looking runs a check that only examines the first reply.
func looking(s *Session, look func(r *reply) error) error {
	r, err := s.reply()
	if err != nil {
		return err
	}
	if r.fault != nil {
		return NotRun("SIGN-02: %w", r.fault)
	}
	return look(r)
}

func chainIsPEM(_ context.Context, s *Session) error {
	r, err := s.reply()
	if err != nil {
		return err
	}
	return r.fault
}

func chainIsShort(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		if len(r.chain) > 10 {
			return fmt.Errorf("it has %d", len(r.chain))
		}
		return nil
	})
}

func leafHasKey(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error { return hasKey(r.cert, r.key) })
}

func leafIsNoCA(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		if r.leaf().IsCA || r.leaf().KeyUsage&x509.KeyUsageCertSign != 0 {
			return errors.New("it may sign certificates")
		}
		return nil
	})
}

func leafMaySign(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		if usage := r.leaf().KeyUsage; usage != 0 && usage&x509.KeyUsageDigitalSignature == 0 {
			return fmt.Errorf("its key usage is %b", usage)
		}
		return nil
	})
}

func leafFitsTLS(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		leaf := r.leaf()
		fits := func(u x509.ExtKeyUsage) bool {
			return u == x509.ExtKeyUsageAny || u == x509.ExtKeyUsageServerAuth || u == x509.ExtKeyUsageClientAuth
		}
		if len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) > 0 && !slices.ContainsFunc(leaf.ExtKeyUsage, fits) {
			return fmt.Errorf("it has %v", leaf.ExtKeyUsage)
		}
		return nil
	})
}

func namesAsAsked(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		want, err := pki.NewIdentity(s.Kit.Identity.SPIFFEID, s.Kit.Identity.DNSNames, s.Kit.Identity.IPAddresses)
		if err != nil {
			return err
		}
		got, err := pki.IdentityOf(r.leaf())
		how := s.nameCheck()
		switch {
		case how == pki.AnyName:
			return nil
		case err != nil:
			return err
		case how == pki.ExactNames && !got.Equal(want), how == pki.TrustDomainName && got.TrustDomain() != want.TrustDomain():
			return fmt.Errorf("asked for %q, it has %q", want, got)
		}
		return nil
	})
}

func noRootInChain(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		for i, cert := range r.chain {
			if pki.SelfSigned(cert) {
				return fmt.Errorf("certificate %d of %d, %q, is self-signed", i+1, len(r.chain), cert.Subject)
			}
		}
		return nil
	})
}

func signaturesAreStrong(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		for i, cert := range r.chain {
			switch cert.SignatureAlgorithm {
			case x509.MD2WithRSA, x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1:
				return fmt.Errorf("certificate %d of %d is signed with %s", i+1, len(r.chain), cert.SignatureAlgorithm)
			}
		}
		return nil
	})
}

func chainIsInOrder(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		for i, cert := range r.chain[1:] {
			below := r.chain[i]
			if err := cert.CheckSignature(below.SignatureAlgorithm, below.RawTBSCertificate, below.Signature); err != nil {
				return fmt.Errorf("certificate %d, %q, did not sign certificate %d, %q", i+2, cert.Subject, i+1, below.Subject)
			}
		}
		return nil
	})
}

func aboveAreCAs(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		for i, cert := range r.chain[1:] {
			if !cert.IsCA || cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
				return fmt.Errorf("certificate %d, %q, is not a CA certificate", i+2, cert.Subject)
			}
		}
		return nil
	})
}

func extensionsAreKnown(_ context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		if leaf := r.leaf(); leaf.Version != 3 || len(leaf.UnhandledCriticalExtensions) > 0 {
			return fmt.Errorf("it has version %d and the critical extensions %v", leaf.Version, leaf.UnhandledCriticalExtensions)
		}
		return nil
	})
}

func rootsAreThere(ctx context.Context, s *Session) error {
	r, err := s.reply()
	if err != nil {
		return err
	}
	_, err = s.rootsOf(ctx, r)
	return err
}

func chainVerifies(ctx context.Context, s *Session) error {
	return looking(s, func(r *reply) error {
		roots, err := s.rootsOf(ctx, r)
		if err != nil {
			return err
		}
		return r.verify(roots)
	})
}
