package fabric

import (
	"context"
	"sync"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// delay is why this machine's links cannot delay packets, if so. A kernel does not learn it while it runs.
var delay = sync.OnceValue(linux.ProbeDelay)

// Offers are what links may have that not every machine gives them.
func (f *Fabric) Offers(context.Context) model.Offers {
	return model.OfferOf(model.FeatureDelay, delay())
}
