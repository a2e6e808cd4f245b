package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The carrier's failures.
var (
	errNoVan    = errors.New("carrier: no van came")
	errNoAnswer = errors.New("carrier: the parcel was handed over and the confirmation got lost")
)

// A carrier collects parcels. It takes its time and fails now and then.
type carrier struct{ fail int } // %

// collect waits for the van and hands the parcel over. Half of the failures
// come before that, and half after it, when the work is done and only the answer
// is lost: the retry must then not hand over a second parcel.
func (c carrier) collect(ctx context.Context, handOver func() error) error {
	drive := time.NewTimer(5*time.Millisecond + rand.N(20*time.Millisecond)) //nolint:gosec // a simulation
	defer drive.Stop()
	select {
	case <-drive.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	luck := rand.IntN(200) //nolint:gosec // a simulation
	if luck < c.fail {
		return errNoVan
	}
	if err := handOver(); err != nil {
		return err
	}
	if luck < 2*c.fail {
		return errNoAnswer
	}
	return nil
}
