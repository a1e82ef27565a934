package fabric

import (
	"context"
	"sync"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// delay says why this machine's links cannot delay packets, if they cannot. That does not change while a kernel runs.
var delay = sync.OnceValue(linux.ProbeDelay)

// Offers are features of links that not every machine has.
func (f *Fabric) Offers(context.Context) model.Offers {
	return model.OfferOf(model.FeatureDelay, delay())
}
