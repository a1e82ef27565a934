package watch

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// recorded is a look at an element while the examples did what they are for (RECORD=… TestOrdinaryUseIsNoAttack, in
// system).
type recorded struct {
	MS     int64              `json:"ms"`
	ID     model.ID           `json:"id"`
	Values map[Signal]float64 `json:"values"`
}

func readRecorded(t *testing.T) (all []recorded) {
	t.Helper()
	f, err := os.Open("testdata/ordinary.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(z); s.Scan(); {
		var r recorded
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if len(all) < 100 {
		t.Fatalf("%d looks were recorded", len(all))
	}
	return all
}

// day plays what was recorded again and again for a day, with rests of minutes to hours between, each time with values
// up to half as much again; attack, if any, is an element's in the middle of the day. It returns what was told, and of
// whom.
func day(looks []recorded, seed uint64, attack func(at time.Duration) (model.ID, []Value)) (told map[model.ID]int,
	looked int) {
	random := rand.New(rand.NewPCG(seed, 0))
	w, told := New(), map[model.ID]int{}
	look := func(at time.Duration, id model.ID, values []Value) {
		looked++
		if n := len(w.Look(id, begin.Add(at), values)); n > 0 {
			told[id] += n
		}
	}
	elements := map[model.ID]bool{}
	for _, l := range looks {
		elements[l.ID] = true
	}
	signals := make([][]Value, len(looks))
	for i, l := range looks {
		for s, v := range l.Values {
			signals[i] = append(signals[i], Value{Signal: s, Value: v})
		}
	}
	quiet := Judge(nil)
	attacked := attack == nil
	var values []Value
	for at := time.Duration(0); at < 24*time.Hour; {
		more := 0.5 + random.Float64()
		for i, l := range looks {
			values = append(values[:0], signals[i]...)
			for j := range values {
				values[j].Value *= more
			}
			look(at+time.Duration(l.MS)*time.Millisecond, l.ID, values)
		}
		at += time.Duration(looks[len(looks)-1].MS) * time.Millisecond
		for rest := at + time.Duration(random.ExpFloat64()*float64(20*time.Minute)); at < rest &&
			at < 24*time.Hour; at += 30 * time.Second {
			for id := range elements {
				look(at, id, quiet)
			}
			if !attacked && at > 12*time.Hour {
				attacked = true
				for i := range 5 {
					when := at + time.Duration(i)*time.Second
					id, values := attack(when)
					look(when, id, values)
				}
			}
		}
	}
	return told, looked
}

// All examples are in the record: who adds one records anew.
func TestRecordHasAllExamples(t *testing.T) {
	recorded := map[string]bool{}
	for _, l := range readRecorded(t) {
		recorded[l.ID.Network] = true
	}
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^network: (\S+)`).FindAllStringSubmatch(string(text), -1) {
			if m[1] == "vlans" || m[1] == "mpls" || m[1] == "vrf" {
				continue // they are recorded where the kernel can make them
			}
			unaddressed := regexp.MustCompile(`(?m)^addressing: none$`).Match(text) // nobody sends before people do
			if !recorded[m[1]] && !unaddressed {
				t.Errorf("%s: network %s is not in testdata/ordinary.json.gz: "+
					"`RECORD=$PWD/node/watch/testdata/ordinary.json.gz "+
					"go test ./system -run TestOrdinaryUseIsNoAttack` records it", file, m[1])
			}
		}
	}
}

// A day of ordinary use of the examples raises no alarm; an attack in the middle of it does, and of nobody else.
func TestADayOfOrdinaryUse(t *testing.T) {
	looks := readRecorded(t)
	for seed := range uint64(3) {
		told, looked := day(looks, seed, nil)
		for id, n := range told {
			if n > 0 {
				t.Errorf("day %d: %d alarms about %s", seed, n, id)
			}
		}
		t.Logf("day %d: %d looks, no alarm wanted", seed, looked)
	}
	for _, rule := range Rules {
		culprit := looks[0].ID
		told, _ := day(looks, 7, func(time.Duration) (model.ID, []Value) {
			return culprit, []Value{{Signal: rule.Signal, Value: 4 * rule.Floor}}
		})
		for id, n := range told {
			if (n > 0) != (id == culprit) {
				t.Errorf("%s: %d alarms about %s, the attacker is %s", rule.Signal, n, id, culprit)
			}
		}
	}
}
