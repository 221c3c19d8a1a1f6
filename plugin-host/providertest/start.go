package providertest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/countersign-dev/countersign/internal/host/command"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// byHand starts the file as a shell would.
func (r *rig) byHand(ctx context.Context, _ *conformance.Session) error {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	stderr := command.Head{Most: 4096}
	// Its children, as a script has them, end with it.
	err := command.Program{Args: []string{r.path}, Env: r.environ(), KillRest: true}.Run(ctx, io.Discard, &stderr)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("it still runs after %s", startBound)
	case err == nil:
		return errors.New("it ends with status 0")
	case len(bytes.TrimSpace(stderr.Bytes())) == 0:
		return fmt.Errorf("it writes nothing: %w", err)
	}
	return nil
}

// environ is the environment of a shell, without secrets of the kit.
func (r *rig) environ() []string {
	all := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(r.withheld, name)
	})
	for key, value := range r.entry.Env {
		all = append(all, key+"="+value)
	}
	return all
}

func (r *rig) starts(ctx context.Context, _ *conformance.Session) error {
	p, err := r.supervised(ctx)
	if err != nil {
		return err
	}
	return p.Close()
}

func (r *rig) nameIsFiles(ctx context.Context, _ *conformance.Session) error {
	probe, err := r.probe(ctx, r.opts)
	if err != nil {
		return err
	}
	defer probe.Close()
	out, err := providerv1.NewProviderClient(probe.Conn()).GetMetadata(ctx, &providerv1.GetMetadataRequest{})
	if err == nil && out.GetName() != r.entry.Name {
		return fmt.Errorf("it calls itself %q, its file %s", out.GetName(), filepath.Base(r.path))
	}
	return err
}

// nobodys is a version of the protocol that no provider has.
func nobodys() wire.Protocol {
	p := wire.V1()
	p.Version = 97
	return p
}

func (r *rig) choosesKnown(ctx context.Context, _ *conformance.Session) error {
	probe, err := r.probe(ctx, r.protocols(wire.V1(), nobodys()))
	if err != nil {
		return err
	}
	defer probe.Close()
	if _, err := probe.Metadata(ctx); err != nil {
		return err
	}
	if spoken := probe.Status().Protocol; spoken != 1 {
		return fmt.Errorf("it chose %d", spoken)
	}
	return nil
}

func (r *rig) refusesUnknown(ctx context.Context, _ *conformance.Session) error {
	_, before := r.seen.stderr.read()
	probe, err := r.launched(r.protocols(nobodys()))
	if err != nil {
		return err
	}
	defer probe.Close()
	switch err := probe.Connect(ctx); {
	case err == nil:
		return errors.New("it goes on, in a version that it does not have")
	case errors.Is(err, pluginhost.ErrVersion): // as stock go-plugin does
		return nil
	}
	if err := gone(probe, startBound); err != nil {
		return err
	}
	why := probe.Why(nil) // its last words are read
	if _, after := r.seen.stderr.read(); after == before || probe.ExitCode() == 0 {
		return fmt.Errorf("%w, and it wrote %d bytes", why, after-before)
	}
	return nil
}

func (r *rig) eachVersion(ctx context.Context, s *conformance.Session) error {
	for _, protocol := range []wire.Protocol{wire.V1(), conformance.V2()} {
		if err := r.inVersion(ctx, s, protocol); err != nil {
			return fmt.Errorf("version %d: %w", protocol.Version, err)
		}
	}
	return nil
}

func (r *rig) inVersion(ctx context.Context, s *conformance.Session, protocol wire.Protocol) error {
	probe, err := r.launched(r.protocols(protocol))
	if err != nil {
		return err
	}
	defer probe.Close()
	switch err := probe.Connect(ctx); {
	case err == nil:
	case protocol.Version > 1 && (errors.Is(err, pluginhost.ErrVersion) || gone(probe, startBound) == nil):
		return nil // it does not speak it
	default:
		return err
	}
	if err := probe.Configure(ctx, r.entry.Settings); err != nil {
		return err
	}
	return s.SignOnce(ctx, probe)
}

// socketIsClosed tries the sockets that the provider made, as a stranger would.
func (r *rig) socketIsClosed(ctx context.Context, s *conformance.Session) error {
	dir, err := os.MkdirTemp(r.opts.RuntimeDir, "kit")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in a folder for temporary files
	opts := r.opts
	opts.RuntimeDir = dir
	probe, err := r.probe(ctx, opts)
	if err != nil {
		return err
	}
	defer probe.Close()
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type() != fs.ModeSocket {
			return err
		}
		return tryAsStranger(ctx, path, time.Duration(s.Kit.CallTimeout))
	})
}

func tryAsStranger(ctx context.Context, socket string, patience time.Duration) error {
	for how, with := range map[string]credentials.TransportCredentials{
		"without TLS":           insecure.NewCredentials(),
		"without a certificate": credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}), //nolint:gosec // the point is to be let in or not
		"with another's certificate": credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec // as above
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return strangersPair() }}),
	} {
		conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(with), grpc.WithMaxHeaderListSize(wire.MaxHeaders))
		if err != nil {
			return err
		}
		called, cancel := context.WithTimeout(ctx, patience)
		_, err = providerv1.NewProviderClient(conn).GetMetadata(called, &providerv1.GetMetadataRequest{})
		cancel()
		_ = conn.Close()
		if reason := ca.ReasonFor(wire.FromStatus(err)); err == nil || reason != ca.Unavailable && reason != ca.Deadline {
			return fmt.Errorf("its socket answers a stranger %s", how)
		}
	}
	return nil
}
