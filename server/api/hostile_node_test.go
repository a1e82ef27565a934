package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// repeated is a text so many times.
type repeated struct {
	text  string
	times int
	rest  string
}

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if r.rest == "" {
			if r.times == 0 {
				return n, io.EOF
			}
			r.times, r.rest = r.times-1, r.text
		}
		k := copy(p[n:], r.rest)
		n, r.rest = n+k, r.rest[k:]
	}
	return n, nil
}

// A joined node answers what the manager asks it by itself, with short answers that become long, with long ones, with
// some that never end, and with none.
func TestAHostileNodesAnswersAreBounded(t *testing.T) {
	t.Parallel() // it waits
	attack.Tell(t, "a joined node answers the manager's questions with a list of 20 million empty items, without end, or "+
		"byte by byte", "the manager decodes none of it, and whoever asks is told what the other nodes say")
	o := openTo(t, openDirs(t), ground)
	ctx := t.Context()
	how := make(chan string, 1)
	answer := func(w http.ResponseWriter, r *http.Request, open, item, end string) {
		is := <-how
		how <- is
		switch is {
		case "swells":
			io.WriteString(w, open+item)                             //nolint:errcheck // hostile
			io.Copy(w, &repeated{text: "," + item, times: 20 << 20}) //nolint:errcheck // likewise
			io.WriteString(w, end)                                   //nolint:errcheck // likewise
		case "never ends":
			io.WriteString(w, open+item)                                      //nolint:errcheck // likewise
			io.Copy(w, &repeated{text: strings.Repeat(" ", 4096), times: -1}) //nolint:errcheck // likewise
		case "drips":
			for r.Context().Err() == nil {
				io.WriteString(w, " ")                //nolint:errcheck // likewise
				http.NewResponseController(w).Flush() //nolint:errcheck // likewise
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	evil, _, _, err := o.join(o.token(model.TokenRequest{}).Text, host("evil"))
	if err != nil {
		t.Fatal(err)
	}
	states, _ := agentOf(t, evil, "evil", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/trash":
			answer(w, r, `{"items":[`, "{}", "]}")
		case "/v1/kept":
			answer(w, r, `{"networks":[`, "{}", "]}")
		case "/v1/responders":
			answer(w, r, `{"failed":[`, "{}", "]}")
		case "/v1/probes":
			answer(w, r, `{"results":[`, "{}", "]}")
		}
	}))
	good, _, _, err := o.join(o.token(model.TokenRequest{}).Text, host("good"))
	if err != nil {
		t.Fatal(err)
	}
	watching, _ := agentOf(t, good, "good", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/trash" {
			io.WriteString(w, `{"items":[{"id":"lab/r1@20260101T000000Z","element":"lab/r1"}]}`) //nolint:errcheck // it is read
		}
	}))
	<-watching // before that, its agent is away
	net := duo("lab")
	net.Elements[0].Node, net.Elements[1].Node = "evil", "evil"
	if _, err := o.root.Apply(ctx, net, model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	var told model.NodeState
	for len(told.Networks) == 0 {
		told = <-states
	}
	if err := evil.Report(ctx, model.Report{Node: "evil", Revision: told.Revision}); err != nil {
		t.Fatal(err)
	}
	for is, words := range map[string]string{"swells": "it has more than|once it is decoded",
		"never ends": "it has more than|did not answer|deadline", "drips": "deadline"} {
		how <- is
		said := func(what, text string) {
			t.Helper()
			for w := range strings.SplitSeq(words, "|") {
				if strings.Contains(text, w) {
					return
				}
			}
			t.Errorf("a node whose answer %s: of %s is said %q, want %s", is, what, text, words)
		}
		list, err := o.root.Trash(ctx)
		if err != nil || len(list.Items) != 1 || list.Items[0].Node != "good" || len(list.Silent) == 0 {
			t.Fatalf("a node whose answer %s: the trash is %d items, silent %.300q, %v", is, len(list.Items), list.Silent, err)
		}
		said("its trash", fmt.Sprint(list.Silent))
		recovered, err := o.root.Recover(ctx, model.RecoverRequest{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		said("what it keeps", fmt.Sprint(recovered.Silent))
		checked, err := o.root.Check(ctx, "lab", model.CheckRequest{Mesh: true})
		if err != nil || len(checked.Probes) == 0 || checked.Probes[0].OK {
			t.Fatalf("a node whose answer %s: the check says %+v, %v", is, checked, err)
		}
		t.Logf("%s: %s; %s; %s", is, list.Silent, recovered.Silent, checked.Probes[0].Message)
		<-how
	}
}
