package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

const spiffeClient = "COUNTERSIGN_TEST_SPIFFE_CLIENT"

// beSPIFFEClient is a program with go-spiffe: it prints a line for each X.509 context, with the SPIFFE
// IDs, the serial number and the number of bundles; each error; and JWT-SVIDs of its own and of another's identity.
func beSPIFFEClient(socket string) {
	ctx := context.Background()
	client, err := workloadapi.New(ctx, workloadapi.WithAddr("unix://"+socket))
	if err != nil {
		panic(err)
	}
	err = client.WatchX509Context(ctx, printing{client})
	fmt.Println("over", err)
}

type printing struct{ *workloadapi.Client }

func (p printing) OnX509ContextUpdate(x *workloadapi.X509Context) {
	line := "svid "
	for _, svid := range x.SVIDs {
		line += svid.ID.String() + " "
	}
	fmt.Println(line+x.SVIDs[0].Certificates[0].SerialNumber.String(), x.Bundles.Len())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, subject := range []spiffeid.ID{{}, spiffeid.RequireFromString(brokerDomain + "web"), spiffeid.RequireFromString(brokerDomain + "db")} {
		token, err := p.FetchJWTSVID(ctx, jwtsvid.Params{Audience: "db", Subject: subject})
		if err != nil {
			fmt.Println("jwt", subject, status.Code(err))
		} else {
			fmt.Println("jwt", subject, token.ID)
		}
	}
}

func (p printing) OnX509ContextWatchError(err error) { fmt.Println("error", status.Code(err)) }

// spiffeProgram is a running beSPIFFEClient.
type spiffeProgram struct {
	*proctest.Process
	lines chan string
}

// startSPIFFEProgram runs it as a user. The binary is run by a descriptor, as the user may not enter its folder.
func startSPIFFEProgram(t *testing.T, socket string, uid uint32) *spiffeProgram {
	t.Helper()
	own, err := os.Open("/proc/self/exe")
	mustDo(t, err)
	defer own.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{spiffeClient + "=" + socket}, []*os.File{own}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	read, write, err := os.Pipe()
	mustDo(t, err)
	defer write.Close()
	cmd.Stdout = write
	p := &spiffeProgram{proctest.Start(t, cmd), make(chan string, 1000)}
	go func() {
		defer read.Close()
		defer close(p.lines)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	return p
}

// line returns the next line that begins so.
func (p *spiffeProgram) line(t *testing.T, begins string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("it ended without a line %q: %s", begins, p.Log.String())
			}
			if strings.HasPrefix(line, begins) {
				return line
			}
		case <-deadline:
			t.Fatalf("no line %q", begins)
		}
	}
}

// startManyAPI starts an agent whose Workload API and SDS are open to all users.
func startManyAPI(t *testing.T, api string, peers []map[string]any) *agent {
	t.Helper()
	a := prepareAgent(t, agentConfig{selfSigned: true})
	shown := proctest.Folder(t)
	mustDo(t, os.Chmod(shown, 0o755))
	a.socket = filepath.Join(shown, "sds")
	content, err := json.Marshal(map[string]any{
		"trust_domain": trustDomain, "ttl": ttl.String(), "rotation": map[string]any{"ratio": renewRatio, "jitter": renewJitter}, "runtime_dir": a.runtimeDir(),
		"socket": map[string]any{"path": a.socket, "mode": "0666"}, "status": map[string]any{"address": "unix:" + a.statusSocket()},
		"providers":    a.providerEntries(t, agentConfig{selfSigned: true}),
		"workload_api": map[string]any{"socket": filepath.Join(shown, api), "jwt_svid": map[string]any{"audiences": []string{"db"}}},
		"workloads":    map[string]any{"peers": peers},
	})
	mustDo(t, err)
	writeWhole(t, a.config(), content)
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	return a
}

// Two users on one socket, by go-spiffe: each gets its own SVIDs, over rotations and a killed agent.
func TestUsersOfOneWorkloadAPIHaveTheirOwnIdentities(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("programs of other users need root")
	}
	program, err := os.Executable()
	mustDo(t, err)
	const web, db, other = 61001, 61002, 61003
	for name, api := range map[string]string{"a socket of its own": "spiffe", "that of SDS": "sds"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startManyAPI(t, api, []map[string]any{
				{"uid": web, "executable": program, "spiffe_id": brokerDomain + "web"},
				{"uid": db, "executable": "/bin/sh", "spiffe_id": brokerDomain + "shell"}, {"uid": db, "spiffe_id": brokerDomain + "db"},
				{"uid": other, "executable": "/bin/sh", "spiffe_id": brokerDomain + "other"},
			})
			socket := filepath.Join(filepath.Dir(a.socket), api)
			programs := map[string]*spiffeProgram{"web": startSPIFFEProgram(t, socket, web), "db": startSPIFFEProgram(t, socket, db)}
			denied, stranger := startSPIFFEProgram(t, socket, other), startSPIFFEProgram(t, socket, other+1)
			serials := map[string]string{}
			var own func(name string)
			own = func(name string) {
				p := programs[name]
				for {
					fields := strings.Fields(p.line(t, "svid"))
					if len(fields) != 4 || fields[1] != brokerDomain+name || fields[3] != "1" {
						t.Fatalf("%s has %q", name, fields)
					}
					if fields[2] != serials[name] {
						serials[name] = fields[2]
						break
					}
				}
				got := map[string]string{}
				for range 3 {
					fields := strings.Fields(p.line(t, "jwt") + " -")
					got[strings.TrimPrefix(fields[1], brokerDomain)] = strings.TrimPrefix(fields[2], brokerDomain)
				}
				if strings.Contains(fmt.Sprint(got), codes.Unavailable.String()) { // the agent was killed between the two
					own(name)
					return
				}
				want := map[string]string{"web": "PermissionDenied", "db": "PermissionDenied"}
				want[name] = name
				maps.DeleteFunc(got, func(subject, _ string) bool { return want[subject] == "" })
				if !maps.Equal(got, want) {
					t.Errorf("JWT-SVIDs of %s: %v", name, got)
				}
			}
			for round := range 3 { // the second is a rotation
				if round == 2 {
					a.stop(t, syscall.SIGKILL)
					a.start(t)
				}
				own("web")
				own("db")
			}
			for _, p := range []*spiffeProgram{denied, stranger} {
				if line := p.line(t, "error"); line != "error PermissionDenied" {
					t.Error(line)
				}
			}
			a.log.await(t, "no identity for a caller of the Workload API", "uid=61003")
			page := getPage(t, a.status, "/metrics")
			for _, want := range []string{`countersign_workload_api_calls_total{outcome="granted"}`, `{outcome="no-identity"}`} {
				if !strings.Contains(page, want) {
					t.Errorf("/metrics has no %s", want)
				}
			}
			programs["web"].Kill()
			programs["db"].Kill()
			poll(t, "the end of their streams", func() bool { return a.workloads(t)["streams"] == 0.0 })
		})
	}
}
