package cli

import (
	"fmt"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// lineEvery is how often progress is told where there is no terminal to draw on.
const lineEvery = 5 * time.Second

// progress shows on the error stream how far something has come: a bar on a terminal, else a line now and then.
type progress struct {
	c          *CLI
	verb       string
	begin      time.Time
	told       time.Time
	most       int
	container  *mpb.Progress
	bar        *mpb.Bar
	done, all  int
	onTerminal bool
}

// newProgress makes a progress that shows nothing yet: what is done at once needs none.
func (c *CLI) newProgress(verb string) *progress {
	now := time.Now()
	p := &progress{c: c, verb: verb, begin: now, told: now}
	_, p.onTerminal = terminalFD(c.Err)
	p.onTerminal = p.onTerminal && c.Getenv("TERM") != "dumb"
	return p
}

// update says that so many elements of all are done.
func (p *progress) update(done, all int) {
	changed := done != p.done || all != p.all
	p.done, p.all = done, all
	if !p.onTerminal {
		if now := time.Now(); changed && now.Sub(p.told) >= lineEvery {
			p.told = now
			fmt.Fprintf(p.c.Err, "%s: %d/%d elements (%s)\n", p.verb, done, all, elapsed(now.Sub(p.begin)))
		}
		return
	}
	if p.bar == nil {
		p.container = mpb.New(mpb.WithOutput(p.c.Err), mpb.WithWidth(40), mpb.WithRefreshRate(100*time.Millisecond))
		p.bar = p.container.AddBar(0, // grows; reaching its end is not the end
			mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name(p.verb+" ")),
			mpb.AppendDecorators(decor.CountersNoUnit(" %d/%d elements"),
				decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace)))
	}
	p.bar.SetTotal(int64(max(all, 1)), false)
	p.bar.SetCurrent(int64(done))
}

// left says that so many elements are still there. The largest number so far counts as all.
func (p *progress) left(n int) {
	p.most = max(p.most, n)
	p.update(p.most-n, p.most)
}

// close takes the bar away, so that what is printed next stands in its place.
func (p *progress) close() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.container.Wait()
		p.bar = nil
	}
}
