// Package setup implements "countersign init", which writes a first configuration. main adds its
// [Command]; nothing is kept.
package setup

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Where a package has the configuration as installed, and polkit the rules of this machine.
const (
	packaged = "/usr/share/countersign/countersign.yaml"
	polkit   = "/etc/polkit-1/rules.d"
)

// request is what the command line asks for.
type request struct {
	provider     string
	name         string
	nginx, envoy bool
	folder       string   // of the configuration
	rules        string   // of polkit
	settings     []string // of the provider, NAME=VALUE
	acceptTerms  bool
	user         string // that Envoy runs as
	force        bool
	forwards     bool // a server on port 80 forwards the CA's requests
}

// Command returns "init".
func Command() *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use: "init acme|vault|file (--nginx|--envoy) NAME", Short: "Write a first configuration, for a certificate for nginx or Envoy",
		Long: `Write a first configuration, for a certificate of one name for nginx or Envoy, the key of its
state, and for nginx the rule with which polkit lets the agent have it reloaded. Print the next
commands. Nothing is started, and no CA is asked.

NAME is a DNS name. The CA is an ACME CA (Let's Encrypt), Vault, or one of the agent's own in a
folder, to try things with. What the CA needs more is passed with --set, by the names that
"countersign provider docs" prints. A configuration that exists is replaced only with --force, or if
it is as a package installed it; the old one is kept beside it.`,
		Example: `  countersign init acme --nginx www.example.org --accept-terms
  countersign init vault --nginx www.example.org \
    --set url=https://vault.example.org:8200 --set role=web \
    --set login.method=approle --set login.role_id=ID \
    --set login.secret_id_file=/etc/countersign/vault-secret-id`,
		ValidArgs: []string{"acme", "vault", "file"},
		Args: func(_ *cobra.Command, args []string) error {
			if err := r.take(args); err != nil {
				return cli.Wrong(err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&r.nginx, "nginx", false, "write files for nginx, and have systemd reload it")
	cmd.Flags().BoolVar(&r.envoy, "envoy", false, "serve Envoy over SDS")
	cmd.Flags().StringVar(&r.folder, "folder", "/etc/countersign", "`folder` of the configuration and the key")
	cmd.Flags().StringVar(&r.rules, "polkit-rules", polkit, "`folder` of polkit's rules")
	cmd.Flags().StringArrayVar(&r.settings, "set", nil, "setting of the provider, as `NAME=VALUE`, such as url=https://vault.example.org:8200; may be repeated")
	cmd.Flags().BoolVar(&r.acceptTerms, "accept-terms", false, "accept the terms of service of the ACME CA")
	cmd.Flags().StringVar(&r.user, "user", "", "`user` that Envoy runs as, by name or number (default envoy, if there is one, else root)")
	cmd.Flags().BoolVar(&r.force, "force", false, "replace a configuration that exists")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return r.write(cmd.OutOrStdout()) }
	return cmd
}

// take checks the arguments.
func (r *request) take(args []string) error {
	switch {
	case len(args) != 2:
		return errors.New("name a CA (acme, vault or file) and the DNS name of the certificate")
	case !slices.Contains([]string{"acme", "vault", "file"}, args[0]):
		return fmt.Errorf("%.64q is not acme, vault or file: write the entry of another provider by hand, see \"countersign provider list\"", args[0])
	case r.nginx == r.envoy:
		return errors.New("choose --nginx or --envoy")
	case r.user != "" && !r.envoy:
		return errors.New("--user is that of Envoy: pass --envoy, or leave it out")
	}
	if _, err := pki.NewIdentity("", []string{args[1]}, nil); err != nil {
		return err
	}
	r.provider, r.name = args[0], args[1]
	return nil
}

func (r *request) write(w io.Writer) (err error) {
	// The agent's working directory is another.
	if r.folder, err = filepath.Abs(r.folder); err != nil {
		return err
	}
	config, key := filepath.Join(r.folder, "countersign.yaml"), filepath.Join(r.folder, "state.key")
	text, err := r.config(key)
	if err != nil {
		return cli.Wrong(err)
	}
	exists, err := r.mayReplace(config)
	if err != nil {
		return err
	}
	made, err := makeKey(key)
	if err != nil {
		return err
	}
	if made {
		fmt.Fprintln(w, "wrote", key)
	}
	if r.nginx {
		rule := filepath.Join(r.rules, "50-countersign-nginx.rules")
		if err := put(rule, nginxRule); err != nil {
			return err
		}
		fmt.Fprintln(w, "wrote", rule)
	}
	if exists {
		if err := keep(config); err != nil {
			return err
		}
	}
	if err := put(config, text); err != nil {
		return err
	}
	fmt.Fprintln(w, "wrote", config)
	_, err = fmt.Fprint(w, r.next(config))
	return err
}

// mayReplace reports whether there is a configuration, and fails if it is the operator's own.
func (r *request) mayReplace(path string) (exists bool, err error) {
	now, err := os.ReadFile(path) // #nosec G304 -- the operator's own file
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	installed, err := os.ReadFile(packaged)
	if pristine := err == nil && bytes.Equal(now, installed); !pristine && !r.force {
		return true, cli.Wrong(fmt.Errorf("%s exists: edit it, or pass --force, which keeps it as %s.old", path, path))
	}
	return true, nil
}

// keep links a file under another name, until it is replaced: at no moment is it missing.
func keep(path string) error {
	old := path + ".old"
	if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(path, old)
}

// put writes a file that every user may read, once and whole: polkit reads a rule when it appears.
func put(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // #nosec G301 -- as the packages have it
		return err
	}
	fresh := path + ".new"
	if err := os.WriteFile(fresh, []byte(text), 0o644); err != nil { // #nosec G306 -- it holds no secret
		return err
	}
	return os.Rename(fresh, path)
}

// makeKey makes the key of the state, unless there is one: for root and the group of the agent's user,
// if this is root, else for this user alone.
func makeKey(path string) (made bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // #nosec G301 -- as above
		return false, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- as above
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	_, err = file.WriteString(hex.EncodeToString(random) + "\n")
	if err = errors.Join(err, giveToAgent(file), file.Close()); err != nil {
		return false, errors.Join(err, os.Remove(path)) // the next run makes it
	}
	return true, nil
}

func giveToAgent(file *os.File) error {
	if os.Geteuid() != 0 {
		return nil
	}
	group, err := user.LookupGroup("countersign")
	if _, unknown := errors.AsType[user.UnknownGroupError](err); unknown {
		return nil // no package made a user for the agent
	}
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(group.Gid)
	if err != nil {
		return err
	}
	return errors.Join(file.Chown(0, gid), file.Chmod(0o440))
}
