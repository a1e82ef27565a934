package agent

import (
	"context"
	"reflect"

	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/fabric"
)

// laid is the fabric as it was made last. While elements only become ready, it stays as it is, and a look at all
// devices of the node would take from them the processor's time that they start with. What others do to devices is told
// by events, and whole passes look at the rest.
type laid struct {
	state  fabric.State
	report fabric.Report
	whole  bool // nothing was left to be done
}

// apply has the fabric be as wanted.
func (l *laid) apply(ctx context.Context, f Fabric, s fabric.State) fabric.Report {
	if l.whole && control.Glancing(ctx) && reflect.DeepEqual(l.state, s) {
		return l.report
	}
	report := f.Apply(ctx, s)
	l.state, l.report = s, report
	l.report.Changed = nil
	l.whole = report.Problem == nil && len(report.Failed) == 0 && report.Again == 0 && report.Steered
	return report
}
