package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// Words of nodes and of the manager, which know keys only, are told in names; and what the manager keeps stays as it is.
func TestWordsAreToldInNames(t *testing.T) {
	const key = "duo.1234"
	names := model.Asker{Name: "ann", Only: true}.Among([]model.NetworkName{{Key: key, Owner: "ann", Title: "duo"}})
	id := model.ID{Network: key, Element: "r1"}
	d := model.Dump{
		Networks: []model.NetworkStatus{{Name: key, Message: "of " + key}},
		Nodes:    []model.NodeStatus{{Held: []string{key}, Problem: "holds " + key}},
		Elements: []model.ElementView{{ElementStatus: model.ElementStatus{ID: id, Message: key + "/r1 failed",
			Quarantine: "scans " + key, Incident: &model.Incident{What: key + "/r1 scans"}}}},
		Links: []model.LinkStatus{{Network: key, Ports: []model.PortStatus{{ID: model.PortID{ID: id, Interface: "e"}}}}}}
	incident, ports := d.Elements[0].Incident, d.Links[0].Ports
	record := model.Record{Owner: "ann", Network: model.Network{Name: key, Title: "duo"},
		FaultRun: &model.FaultRun{Done: []model.FaultDone{{Problem: "network " + key + " is full"}}}}
	event := model.Event{Network: key, Owner: "ann", Title: "duo", Object: key + "/r1:e", Message: key + "/r1 is up"}
	check := model.CheckResult{Network: key, Probes: []model.ProbeResult{{From: key + "/h1", To: key + "/h2",
		Answered: key + "/h3", Message: key + "/h1 is stopped"}}, States: []model.StateResult{{Message: key + "/r1"}}}
	tellDump(names, &d)
	for what, told := range map[string]any{"dump": d, "record": tellRecord(names, &record), "check": tellCheck(names, check),
		"event": tellEvent(names, &event), "refusal": tellProblem(names, &ProblemDetail{Detail: key + " is full",
			Errors: []Reason{{Message: "of " + key, Problems: []model.Problem{{Network: key, Message: key}}}}})} {
		b, err := json.Marshal(told)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(b); strings.Contains(text, key) || !strings.Contains(text, "duo") {
			t.Errorf("of the %s is told %s", what, text)
		}
	}
	if incident.What != key+"/r1 scans" || ports[0].ID.ID != id || record.FaultRun.Done[0].Problem != "network "+key+
		" is full" || check.Probes[0].From != key+"/h1" || event.Object != key+"/r1:e" {
		t.Error("what is kept was changed")
	}
}
