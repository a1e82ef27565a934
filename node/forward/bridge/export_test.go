package bridge

// Older has the plane treat this kernel as one before Linux 6.7.
func (p *Plane) Older() { p.older = true }
