package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"
)

// A wire is the network between clients and a server, a proxy that can be poisoned.
type wire struct {
	tb   testing.TB
	to   string
	toxi *toxiproxy.ApiServer

	mu     sync.Mutex // guards what follows
	proxy  *toxiproxy.Proxy
	at     string
	buried []*toxiproxy.Proxy // whose connections are silent for ever
}

func newWire(tb testing.TB, to string) *wire {
	tb.Helper()
	w := &wire{tb: tb, to: to, toxi: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
	w.renew()
	return w
}

// renew puts a new proxy in the place of the one there, whose connections stay.
func (w *wire) renew() {
	proxy := toxiproxy.NewProxy(w.toxi, "redis", "127.0.0.1:0", w.to)
	if err := proxy.Start(); err != nil {
		w.tb.Error(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.proxy != nil {
		w.buried = append(w.buried, w.proxy)
	}
	w.proxy, w.at = proxy, proxy.Listen
}

func (w *wire) now() *toxiproxy.Proxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proxy
}

func (w *wire) addr() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// client is an application's, but that it finds the proxy that there is.
func (w *wire) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: w.addr(), MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, w.addr())
		},
	})
}

// poison adds a toxic.
func (w *wire) poison(kind, stream, attributes string) {
	text := fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":{%s}}`, kind, stream, attributes)
	if _, err := w.now().Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
		w.tb.Errorf("%s: %v", text, err)
	}
}

// mend ends whatever befell the wire. What was made silent for ever stays so.
func (w *wire) mend() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	proxy := w.now()
	proxy.Toxics.ResetToxics(ctx)
	if !proxy.Enabled {
		if err := proxy.Start(); err != nil {
			w.tb.Error(err)
		}
	}
}

// bury ends the connections that were silent for ever.
func (w *wire) bury() {
	w.mu.Lock()
	old := w.buried
	w.buried = nil
	w.mu.Unlock()
	for _, proxy := range old {
		proxy.Stop()
	}
}

func (w *wire) cut() {
	w.bury()
	w.now().Stop()
}

// A trouble is a fault of a connection.
type trouble struct {
	name   string
	strike func(w *wire, rnd *rand.Rand)
}

func way(rnd *rand.Rand) string {
	if rnd.IntN(2) == 0 {
		return "upstream"
	}
	return "downstream"
}

// troubles are all that befalls a wire.
var troubles = []trouble{
	{"latency", func(w *wire, rnd *rand.Rand) {
		w.poison("latency", way(rnd), fmt.Sprintf(`"latency":%d,"jitter":10`, 10+rnd.IntN(150)))
	}},
	{"reply lost", func(w *wire, rnd *rand.Rand) {
		w.poison("timeout", "downstream", fmt.Sprintf(`"timeout":%d`, rnd.IntN(2)*rnd.IntN(60)))
	}},
	{"request lost", func(w *wire, rnd *rand.Rand) {
		w.poison("timeout", "upstream", fmt.Sprintf(`"timeout":%d`, rnd.IntN(2)*rnd.IntN(60)))
	}},
	{"reset", func(w *wire, rnd *rand.Rand) {
		w.poison("reset_peer", way(rnd), fmt.Sprintf(`"timeout":%d`, rnd.IntN(2)*rnd.IntN(30)))
	}},
	{"slow close", func(w *wire, rnd *rand.Rand) {
		w.poison("slow_close", "downstream", fmt.Sprintf(`"delay":%d`, 50+rnd.IntN(200)))
		w.poison("limit_data", "upstream", fmt.Sprintf(`"bytes":%d`, rnd.IntN(300)))
	}},
	{"half-open", func(w *wire, _ *rand.Rand) {
		w.poison("timeout", "upstream", `"timeout":0`)
		w.poison("timeout", "downstream", `"timeout":0`)
		w.renew()
	}},
	{"sliced", func(w *wire, rnd *rand.Rand) {
		size := 1 + rnd.IntN(12)
		w.poison("slicer", way(rnd), fmt.Sprintf(`"average_size":%d,"size_variation":%d,"delay":%d`, size, size/2, rnd.IntN(500)))
	}},
	{"reply cut", func(w *wire, rnd *rand.Rand) {
		w.poison("limit_data", "downstream", fmt.Sprintf(`"bytes":%d`, rnd.IntN(60)))
	}},
	{"request cut", func(w *wire, rnd *rand.Rand) {
		w.poison("limit_data", "upstream", fmt.Sprintf(`"bytes":%d`, rnd.IntN(300)))
	}},
	{"proxy stopped", func(w *wire, _ *rand.Rand) { w.now().Stop() }},
}
