//go:build !unix

package main

import "os"

// freeze does nothing where processes cannot be stopped: a kill may then come too
// late to interrupt a run.
func freeze(*os.Process) error { return nil }

func thaw(*os.Process) error { return nil }
