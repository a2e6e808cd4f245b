// Package chaos injects faults into real servers and real worker processes, and
// counts what becomes of the tasks. It has tests alone, each of them a scenario:
//
//	make chaos                                        # eight minutes
//	make chaos CHAOS=long                             # hours
//	make chaos ARGS="-run Kill -args -seed 7"         # one, with the plan of a seed
//	go test -short ./...                              # the short form, as CI has it
//
// A scenario enqueues tasks and notes of each whether that was confirmed, refused, or
// of unknown outcome. Worker processes note every run in a file of their own, which no
// fault reaches: before the handler begins, and when the queue has confirmed that the
// task is done. When all is over, and workers that nothing befalls have drained what
// was left, the two are compared, in the words of Jepsen's total-queue checker:
//
//	attempts    tasks that were tried to enqueue
//	acked       of these confirmed
//	lost        confirmed, and never run
//	unexpected  run, and never tried, or refused
//	duplicated  run more often than they were to be
//	recovered   of unknown outcome, and run
//
// To these come reruns, the runs that were too many; early, the runs that began before
// their task was due; and double acks, the tasks of which two deliveries were told that
// they had ended it.
//
// Where a replica takes over, what was confirmed after the last moment at which it had
// everything is counted as lost or as ended twice like the rest, and may be; with
// ReplicaAcks nothing may be lost.
//
// Each scenario has a row in the table at the end, and prints one JSON object: the
// faults that it injected, these counts, what it measured, and its seed. A seed repeats
// the plan, not the interleaving. A promise that was broken fails its scenario, and so
// go test.
package chaos
