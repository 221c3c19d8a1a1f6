package bench

import (
	"context"
	"os/exec"
	"path/filepath"
)

// bareServer refuses each name, and does nothing else: what a refusal costs in gRPC alone.
type bareServer struct {
	cmd    *exec.Cmd
	stream *demandStream
}

// startBare starts one. With a URL, it calls that first for each name.
func (b *bench) startBare(ctx context.Context, ask ...string) (*bareServer, error) {
	cmd, err := b.command(filepath.Join(b.root, "bareserver"), append([]string{"s"}, ask...)...)
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	socket := filepath.Join(cmd.Dir, "s")
	if err = appear(socket); err == nil {
		s := &bareServer{cmd: cmd}
		if s.stream, err = openDemandStream(ctx, socket); err == nil {
			return s, nil
		}
	}
	end(cmd)
	return nil, err
}

func (s *bareServer) stop() {
	s.stream.close()
	end(s.cmd)
}
