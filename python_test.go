package polyplane_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/trust"
)

// python3 is Debian's, with what scripts/setup brings; a developer may have another before it.
const python3 = "/usr/bin/python3"

// python runs Python in the package's folder and returns what it printed. Nothing is left in there.
func python(t *testing.T, stdin []byte, env []string, args ...string) (string, error) {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	c.Dir = "python"
	c.Env = append(append(os.Environ(), "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1"), env...)
	c.Stdin = bytes.NewReader(stdin)
	var out, complaints strings.Builder
	c.Stdout, c.Stderr = &out, &complaints
	err := c.Run()
	if err != nil || complaints.Len() > 0 {
		t.Logf("%s:\n%s", strings.Join(args, " "), complaints.String())
	}
	return out.String(), err
}

// TestPythonTypesAreGenerated: the Python package's types are those of the API's OpenAPI document.
func TestPythonTypesAreGenerated(t *testing.T) {
	answer := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, "https://polyplane/openapi.json", nil)
	api.New(api.Services{}).ServeHTTP(answer, request)
	var document struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil || len(document.Paths) < 20 {
		t.Fatalf("the OpenAPI document has %d paths (%v): %s", len(document.Paths), err, answer.Body)
	}
	want, err := python(t, answer.Body.Bytes(), nil, python3, "tools/generate.py")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(want, "class Network(TypedDict, total=False):\n") {
		t.Fatalf("the script wrote no types:\n%s", want)
	}
	if got := read(t, "python/polyplane/_types.py"); got != want {
		t.Error("python/polyplane/_types.py is stale: the API has changed. `make generate` writes it again")
	}
}

// TestPythonPackage runs the tests of the Python package, and checks its types.
func TestPythonPackage(t *testing.T) {
	out, err := python(t, nil, nil, "mypy", "--strict", "--cache-dir="+os.DevNull, "polyplane", "tools", "tests")
	if err != nil {
		t.Errorf("mypy: %v\n%s", err, out)
	}
	c := exec.Command(python3, "-W", "error", "-m", "unittest", "discover", "-t", ".", "-s", "tests")
	c.Dir = "python"
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1")
	told, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(told), "\nOK\n") || strings.Contains(string(told), "Exception ignored") {
		t.Errorf("the package's own tests: %v\n%s", err, told)
	}
	files, err := filepath.Glob("python/*/*.py")
	if err != nil || len(files) < 10 {
		t.Fatalf("only %d files (%v): the test looks at the wrong folder", len(files), err)
	}
	for _, file := range files {
		for i, line := range strings.Split(read(t, file), "\n") {
			if len([]rune(line)) > mostColumns {
				t.Errorf("%s:%d has more than %d columns", file, i+1, mostColumns)
			}
		}
	}
}

// TestPythonOverTLS: a script with a token sends it to the manager that the token is of, and to nobody else.
func TestPythonOverTLS(t *testing.T) {
	authority := func() *trust.Authority {
		a, err := trust.OpenAuthority(t.TempDir(), "test")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ours, others := authority(), authority()
	var shown atomic.Value
	serve := func(a *trust.Authority, pem []byte) string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/authority" {
				if r.Header.Get("Authorization") != "" {
					t.Error("the token was shown before it was known to whom")
				}
				_, _ = w.Write(pem)
				return
			}
			shown.Store(r.Header.Get("Authorization"))
			_, _ = w.Write([]byte(`{"instance": "far"}`))
		}))
		s.TLS = trust.NewServer(a, func() []string { return nil }).Config()
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // those who find another manager break off
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	token := trust.NewToken(ours.Pin())
	const script = `import polyplane, sys
try:
    print(polyplane.Client().ping()["instance"])
except polyplane.NotRunning as err:
    print(err)
`
	for name, c := range map[string]struct{ server, want string }{
		"the right one":       {serve(ours, ours.PEM()), "far\n"},
		"another":             {serve(others, others.PEM()), "is not the manager that the token is of"},
		"another that claims": {serve(others, ours.PEM()), "is not the manager that the token is of"},
		"nobody":              {"127.0.0.1:1", "the manager at 127.0.0.1:1 cannot be reached"},
	} {
		shown.Store("")
		out, err := python(t, nil, []string{"POLYPLANE_INSTANCE=", "POLYPLANE_SERVER=" + c.server,
			"POLYPLANE_TOKEN=" + token.String()}, python3, "-c", script)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: it printed %q (%v), %q was expected", name, out, err, c.want)
		}
		if got, want := shown.Load() == "Bearer "+token.String(), c.want == "far\n"; got != want {
			t.Errorf("%s: the token was shown: %v", name, got)
		}
	}
}
