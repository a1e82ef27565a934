package chaos

import (
	"context"
	"math/rand/v2"
)

type cluster struct{}

func startCluster(context.Context, string) (*cluster, error) { return &cluster{}, nil }
func (c *cluster) flags() []string                           { return nil }
func (c *cluster) close()                                    {}
func (run *run) killMember(context.Context, *rand.Rand) (func() error, error) {
	return nothing, nil
}
func (run *run) killLeader(context.Context, *rand.Rand) (func() error, error) {
	return nothing, nil
}
func (run *run) cutCluster(context.Context, *rand.Rand) (func() error, error) {
	return nothing, nil
}
