// Flashsale holds a flash sale with Duly: a shop over HTTP with a database
// behind it, a crowd of buyers, and worker processes that remind, cancel what is
// not paid in time and ship what is. One of them is killed in the middle. The
// report at the end says whether anything was sold that was not there, shipped
// twice, lost, or run early.
//
//	go run .
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

// Exit statuses.
const (
	exitSafe        = 0
	exitUnsafe      = 1 // or it could not be held
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	logging.Disable() // what go-redis would log comes back as errors
	if len(os.Args) > 1 && os.Args[1] == workerCommand {
		if err := work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "flashsale: worker: %v\n", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(sell(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// sell holds the sale that the arguments describe, and returns the exit status.
func sell(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitSafe
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "flashsale: %v\n", err)
		return exitUsage
	}
	out := newConsole(stderr)
	r, err := hold(ctx, &cfg, out)
	if err != nil && ctx.Err() != nil {
		_, _ = fmt.Fprintln(out, "flashsale: interrupted")
		return exitInterrupted
	}
	if err != nil {
		out.warn(err)
	}
	if r == nil {
		return exitUnsafe
	}
	if status := present(r, cfg.JSON, stdout, out); status != exitSafe || err == nil {
		return status
	}
	return exitUnsafe
}

// present prints the report, and returns the exit status that it deserves.
func present(r *report, asJSON bool, stdout io.Writer, out *console) int {
	write := r.writeText
	if asJSON {
		write = r.writeJSON
	}
	if err := write(stdout); err != nil {
		out.warn(fmt.Errorf("print the report: %w", err))
		return exitUnsafe
	}
	if r.breach() != "" {
		return exitUnsafe
	}
	return exitSafe
}
