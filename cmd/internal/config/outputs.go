package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/filesecret"
)

// Output writes a secret to a set of files.
type Output struct {
	Name string `json:"name"`
	// Secret and Bundle name what to write. Default: default and ROOTCA.
	Secret string `json:"secret"`
	Bundle string `json:"bundle"`
	// Folder is the folder for the files.
	Folder string `json:"folder"`
	// Files lists the files. Default: key.pem, cert-chain.pem and root-cert.pem, Istio's
	// names.
	Files []OutputFile `json:"files"`
	// SPIFFEFolder is a SPIFFE credential folder, in place of Folder, Files and Link: one file
	// with the key and its chain, and one with the roots of its own and of each trust domain in
	// workload_api.federated and bundle_endpoints. Prefer a folder in memory.
	SPIFFEFolder string `json:"spiffe_folder"`
	// Link is the name of a symbolic link in Folder. Each version of the files then gets a
	// folder of its own, and the link changes to it atomically. Prefer it. Default: none,
	// the files are replaced one by one, those with a key last; a reader in between finds a
	// key and a certificate that do not match.
	Link string `json:"link"`
	// Owner and Group of the files, by name or number. Default: the agent's.
	Owner string `json:"owner"`
	Group string `json:"group"`
	// PasswordFile contains the password of keystores and truststores. Default: the
	// password "changeit".
	PasswordFile string `json:"password_file"`
	Reload       Reload `json:"reload"`
}

// OutputFile is one file of an output.
type OutputFile struct {
	Name string `json:"name"`
	// Content is chain, key, roots, crl, combined, pkcs12, pkcs12-truststore or
	// jks-truststore.
	Content string `json:"content"`
	// Mode is octal, in quotes. Default: "0600" with a key, else "0644".
	Mode FileMode `json:"mode"`
}

// Reload is what to do after a write: nothing, run a command, or send a signal.
type Reload struct {
	// Command is a program and its arguments, without a shell.
	Command []string `json:"command"`
	// Signal is sent to the process in PIDFile if it runs Executable as User (default: the
	// agent's own).
	Signal     string `json:"signal"`
	PIDFile    string `json:"pid_file"`
	Executable string `json:"executable"`
	User       string `json:"user"`
}

// reloadPause is the minimum time between two reloads.
const reloadPause = time.Second

// Signals lists the allowed signals.
var Signals = []string{"HUP", "INT", "TERM", "QUIT", "USR1", "USR2", "WINCH"}

func (c *Config) completeOutputs(p *problems) {
	taken := map[string]string{}
	for i := range c.Outputs {
		o := &c.Outputs[i]
		if o.Name == "" {
			c.say(p, fmt.Sprintf("outputs.%d.name", i), o.Name, "write a name for the log and the metrics")
			continue
		}
		path := "outputs." + text.Clean(o.Name)
		o.complete()
		c.checkOutput(p, o, path)
		for _, at := range o.paths() {
			if other, ok := taken[at]; ok {
				p.add(fmt.Errorf("%s and outputs.%s both write %s", path, text.Clean(other), text.Clean(at)))
			}
			taken[at] = o.Name
		}
	}
}

// paths returns the names that the output replaces: its link, or else its files.
func (o *Output) paths() (all []string) {
	if o.SPIFFEFolder != "" {
		return []string{filepath.Join(o.SPIFFEFolder, filesecret.CredentialBundle)}
	}
	if o.Link != "" {
		return []string{filepath.Join(o.Folder, o.Link)}
	}
	for _, file := range o.Files {
		all = append(all, filepath.Join(o.Folder, file.Name))
	}
	return all
}

// Place is the folder that holds the files.
func (o *Output) Place() string { return cmp.Or(o.SPIFFEFolder, filepath.Join(o.Folder, o.Link)) }

func (o *Output) complete() {
	if len(o.Files) == 0 && o.SPIFFEFolder == "" {
		for _, file := range output.IstioFiles() {
			o.Files = append(o.Files, OutputFile{Name: file.Name, Content: string(file.Content)})
		}
	}
	for i := range o.Files {
		if file := &o.Files[i]; file.Mode == 0 {
			file.Mode = FileMode(output.Content(file.Content).DefaultMode())
		}
	}
	o.Secret = cmp.Or(o.Secret, DefaultSecret)
	o.Bundle = cmp.Or(o.Bundle, RootCA)
}

func (c *Config) checkOutput(p *problems, o *Output, path string) {
	if o.SPIFFEFolder != "" && o.Folder != "" {
		p.add(fmt.Errorf("%s: write either folder or spiffe_folder", path))
		return
	}
	if i := c.find(o.Secret); o.SPIFFEFolder != "" && i >= 0 && c.Secrets[i].SPIFFEID == "" {
		c.say(p, path+".secret", o.Secret, "the secret has no spiffe_id, which a SPIFFE credential folder needs")
	}
	if err := o.Config().Check(); err != nil {
		p.add(fmt.Errorf("%s: %w", path, err))
	}
	written := o.Config()
	for key, name := range map[string]string{"secret": written.Pair, "bundle": written.Bundle} {
		switch {
		case name == "": // not part of the output
		case c.elsewhere(name):
			c.say(p, path+"."+key, name, c.foreignRule()+" and serves it; remove the output, or stop that program")
		case !c.FromOthers(name) && !c.configured(name) && !(key == "bundle" && c.fromEndpoint(name)):
			c.say(p, path+"."+key, name, "no secret of that name is configured")
		}
	}
	r := o.Reload
	if len(r.Command) > 0 && !filepath.IsAbs(r.Command[0]) {
		c.say(p, path+".reload.command", strings.Join(r.Command, " "), "begin it with the absolute path of a program")
	}
	if r.Signal != "" {
		c.oneOf(p, path+".reload.signal", r.Signal, Signals...)
	}
	switch {
	case len(r.Command) > 0 && r.Signal != "":
		p.add(fmt.Errorf("%s.reload: write either command or signal", path))
	case r.Signal != "" && (r.PIDFile == "" || r.Executable == ""):
		p.add(fmt.Errorf("%s.reload: signal needs pid_file, and executable, the program of that process", path))
	case r.Signal == "" && r.PIDFile+r.Executable+r.User != "":
		p.add(fmt.Errorf("%s.reload: pid_file, executable and user need signal; set it, or remove them", path))
	}
}

// Config returns the sdk's form of the output, without owner, password and reload.
func (o *Output) Config() output.Config {
	cfg := output.Config{Name: o.Name, Pair: o.Secret, Bundle: o.Bundle, Folder: o.Folder, Link: o.Link, Pause: reloadPause}
	if o.SPIFFEFolder != "" {
		cfg.Folder, cfg.SPIFFE = o.SPIFFEFolder, true
	}
	for _, file := range o.Files {
		cfg.Files = append(cfg.Files, output.File{Name: file.Name, Content: output.Content(file.Content), Mode: fs.FileMode(file.Mode)})
	}
	if !cfg.SPIFFE && !slices.ContainsFunc(o.Files, func(f OutputFile) bool {
		return strings.HasSuffix(f.Content, "truststore") || f.Content == string(output.Roots) || f.Content == string(output.CRL)
	}) {
		cfg.Bundle = "" // no file contains it, so nothing waits for it
	}
	return cfg
}
