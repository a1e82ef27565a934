package watch

import (
	"encoding/json"
	"math"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
)

var begin = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)

// steps looks every second at one signal's values, and returns at which of them something was told.
func steps(w *Watch, from time.Time, signal Signal, values ...float64) (told []int) {
	for i, v := range values {
		if len(w.Look(me, from.Add(time.Duration(i)*time.Second), []Value{{Signal: signal, Value: v}})) > 0 {
			told = append(told, i)
		}
	}
	return told
}

func repeat(v float64, n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = v
	}
	return all
}

func TestLook(t *testing.T) {
	for name, c := range map[string]struct {
		before, values []float64
		want           []int
	}{
		"below the floor":          {nil, []float64{29, 29, 29, 29}, nil},
		"one look is none":         {nil, []float64{500, 0, 500, 0, 500}, nil},
		"two looks in a row":       {nil, []float64{500, 500, 500, 500}, []int{1}},
		"told once in ten minutes": {nil, repeat(500, 700), []int{1, 601}},
		"again after a minute of calm": {nil, append(append([]float64{500, 500}, repeat(0, 61)...), 500,
			500), []int{1, 64}},
		"not again after half a minute": {nil, append(append([]float64{500, 500}, repeat(0, 30)...),
			500, 500), []int{1}},
		"usual for it":        {repeat(25, 1800), []float64{60, 60, 60}, nil},
		"ten times the usual": {repeat(25, 1800), []float64{260, 260}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := New()
			if told := steps(w, begin, Scan, c.before...); told != nil {
				t.Fatalf("what comes before was told at %v", told)
			}
			if got := steps(w, begin.Add(time.Duration(len(c.before))*time.Second), Scan,
				c.values...); !reflect.DeepEqual(got, c.want) {
				t.Errorf("told at %v, want %v", got, c.want)
			}
		})
	}
}

func TestLooksThatAreFarApartAreNotInARow(t *testing.T) {
	w := New()
	at := begin
	for range 10 {
		if found := w.Look(me, at, []Value{{Signal: Scan, Value: 500}}); found != nil {
			t.Fatalf("told: %v", found)
		}
		at = at.Add(gap + time.Second)
	}
}

// Whoever begins slowly teaches the watch no more than a bounded amount: what is a hundred times the floor is always
// found.
func TestNobodyTeachesTheWatchToSleep(t *testing.T) {
	for _, r := range Rules {
		w := New()
		at, v, told := begin, r.Floor/10, false
		for v < 100*r.Floor && !told {
			for range 300 {
				told = told || len(w.Look(me, at, []Value{{Signal: r.Signal, Value: v}})) > 0
				at = at.Add(time.Second)
			}
			v *= 1.05
		}
		if !told || v > r.Times*most*r.Floor*1.1 {
			t.Errorf("%s: creeping up was told: %v, at %g of a floor of %g", r.Signal, told, v, r.Floor)
		}
	}
}

// What somebody else may have provoked is marked, at any of the looks in the row.
func TestProvoked(t *testing.T) {
	w := New()
	for i, provoked := range []bool{false, true, false} {
		found := w.Look(me, begin.Add(time.Duration(i)*time.Second),
			[]Value{{Signal: Asking, Value: 900, Provoked: provoked}})
		if i == 1 && (len(found) != 1 || !found[0].Provoked) {
			t.Errorf("found %+v", found)
		}
	}
	for _, c := range []struct {
		signal          Signal
		value, received float64
		want            bool
	}{
		{Asking, 900, 0, false}, {Asking, 900, 300, true}, {Asking, 900, 10, false},
		{Connections, 60_000, 20_000, true}, {Connections, 60_000, 1, false},
		{Refused, 100, 5, false}, {Refused, 100, 5000, true}, {Scan, 100, 100, false}, {Kernel, 3, 5000, true},
		{Kernel, 3, 10, false},
		{Tables, 3, 5000, true}, {Tables, 3, 10, false}, {Sockets, 500, 5000, true}, {Sockets, 500, 10, false},
		{Storm, 1e5, 1e5, false},
	} {
		if got := (&Value{Signal: c.signal, Value: c.value}).May(c.received); got != c.want {
			t.Errorf("%v: provoked is %v", c, got)
		}
	}
}

// Somebody else's attack excuses nobody for longer than its effects last.
func TestExcusesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		provoked func(second int) bool
		want     []int // when it is told, provoked or not
		last     bool
	}{
		"the other goes on":          {func(int) bool { return true }, []int{1}, true},
		"the other is cut off":       {func(s int) bool { return s < 5 }, []int{1, 64}, false},
		"the other comes and goes":   {func(s int) bool { return s%40 == 0 }, []int{1}, true},
		"there was never any other":  {func(int) bool { return false }, []int{1}, false},
		"the other begins later":     {func(s int) bool { return s > 5 }, []int{1}, false},
		"the other ends at the last": {func(s int) bool { return s < 200 }, []int{1, 259}, false},
	} {
		w := New()
		var told []int
		last := false
		for i := range 300 {
			for _, v := range w.Look(me, begin.Add(time.Duration(i)*time.Second),
				[]Value{{Signal: Storm, Value: 1e5, Provoked: c.provoked(i)}}) {
				told, last = append(told, i), v.Provoked
			}
		}
		if !reflect.DeepEqual(told, c.want) || last != c.last {
			t.Errorf("%s: told at %v, at last as others' doing: %v; want %v, %v", name, told, last, c.want, c.last)
		}
	}
}

func TestMemoriesSurvive(t *testing.T) {
	w := New()
	steps(w, begin, Scan, repeat(12, 3000)...)
	steps(w, begin, Storm, repeat(80, 3000)...)
	b, err := json.Marshal(w.Memories())
	if err != nil {
		t.Fatal(err)
	}
	var kept []Memory
	if err := json.Unmarshal(b, &kept); err != nil {
		t.Fatal(err)
	}
	again := New()
	again.Remember(append(kept, Memory{ID: me, Signal: "nonsense"}, Memory{ID: model.ID{Network: "x", Element: "y"},
		Signal: Scan, Usual: Usual{Median: 1e12}}), begin)
	if got, want := again.Of(me), w.Of(me); !reflect.DeepEqual(got, want) {
		t.Errorf("remembered %v, want %v", got, want)
	}
	if u := again.Of(me)[Scan]; math.Abs(u.Median-12) > 1 {
		t.Errorf("usual is %+v of 12 a second", u)
	}
	if len(again.Memories()) != 2 {
		t.Errorf("nonsense was remembered: %v", again.Memories())
	}
	again.Keep(func(id model.ID) bool { return id != me })
	if len(again.Memories()) != 0 {
		t.Error("what is gone is remembered")
	}
}

// Whatever is measured: nothing below a floor is ever told, and what is far above every limit, twice in a row, always
// is.
func TestPropertiesOfLook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := New()
		rule := rapid.SampledFrom(Rules).Draw(t, "rule")
		at := begin
		for range rapid.IntRange(0, 200).Draw(t, "looks") {
			at = at.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
			v := rapid.Float64Range(0, rule.Floor*0.999).Draw(t, "value")
			if found := w.Look(me, at, []Value{{Signal: rule.Signal, Value: v}}); len(found) > 0 {
				t.Fatalf("%g of a floor of %g was told: %+v", v, rule.Floor, found)
			}
			if u := w.Of(me)[rule.Signal]; u.Median < 0 || u.Median > most*rule.Floor || u.Spread < 0 ||
				math.IsNaN(u.Median+u.Spread) {
				t.Fatalf("usual is %+v", u)
			}
		}
		told := false
		for range rule.Looks {
			at = at.Add(time.Second)
			told = len(w.Look(me, at, []Value{{Signal: rule.Signal, Value: 200 * rule.Floor}})) > 0 || told
		}
		if !told {
			t.Fatalf("200 floors of %s were not told; usual is %+v", rule.Signal, w.Of(me))
		}
	})
}

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   int
	}{{nil, 0}, {[]float64{0.1, 0.4, 0.7, 1, 1, 1}, 0}, {[]float64{1, 0.7, 0.2, 0, 0}, 0},
		{[]float64{0, 1, 0, 1, 0}, 3},
		{[]float64{0.1, 0.2, 0.1, 0.2, 0.1, 0.2}, 0}, {[]float64{0, 0.5, 0.5, 0.45, 0.1, 0.9}, 2},
		// slowly, in small steps
		{[]float64{0, 0.1, 0.2, 0.3, 0.2, 0.1, 0, 0.1, 0.2}, 2}, {[]float64{0.9, 0.8, 0.7, 0.6, 0.7, 0.8, 0.9}, 1},
		{[]float64{0.5}, 0}} {
		if got := Turns(c.shares); got != c.want {
			t.Errorf("%v: %d turns, want %d", c.shares, got, c.want)
		}
	}
}

// A busy machine makes what a kernel asks once a second look like much more, look after look: but it is always the same
// neighbours that are asked for.
func TestAbsentNeighboursThatAreAskedForAgain(t *testing.T) {
	for name, c := range map[string]struct {
		count, step int
		want        bool
	}{
		"the same few":    {17, 0, false},
		"half are others": {40, 20, false},
		"others":          {17, 17, true},
		"the same, many":  {insistent + 1, 0, true},
	} {
		w := New()
		told := false
		for n := range 10 {
			asked := map[netip.AddrPort]bool{}
			for i := range c.count {
				asked[netip.AddrPortFrom(address(n*c.step+i), 0)] = true
			}
			found := w.Look(me, begin.Add(time.Duration(n)*time.Second), []Value{{Signal: Asking, Value: 60, asked: asked}})
			told = told || len(found) > 0
		}
		if told != c.want {
			t.Errorf("%s: told: %v, want %v", name, told, c.want)
		}
	}
}

// Of returns what is usual for an element, by signal.
func (w *Watch) Of(id model.ID) map[Signal]Usual {
	all := map[Signal]Usual{}
	for k, s := range w.states {
		if k.id == id {
			all[k.signal] = s.Usual
		}
	}
	return all
}
