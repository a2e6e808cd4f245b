package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"strconv"
	"time"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	styleCSS []byte

	page = template.Must(template.New("page").Parse(pageHTML))
)

// A counter is the shop's HTTP side.
type counter struct {
	shop  *shop
	board *board
	warn  func(error)
}

// handler serves the orders and a live page.
//
//	POST /orders            {"buyer", "item"}: 201 and the order, or 200 and the one there was;
//	                        409 sold out, come again after Retry-After; 410 sold out for good
//	POST /orders/{id}/pay   200 and the order, 409 if it has been cancelled
//	GET  /orders/{id}       200 and the order
//	GET  /orders/{id}/parcel  200 and its number as soon as it has left; 409 if the order is
//	                        not paid; 504 if it took too long, ask again
//	GET  /                  the page
func (c *counter) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", c.order)
	mux.HandleFunc("POST /orders/{id}/pay", c.pay)
	mux.HandleFunc("GET /orders/{id}", c.show)
	mux.HandleFunc("GET /orders/{id}/parcel", c.parcel)
	mux.HandleFunc("GET /{$}", c.page)
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(styleCSS)
	})
	return mux
}

// server is an HTTP server with the time limits that one needs in the open.
func (c *counter) server() *http.Server {
	return &http.Server{
		Handler: c.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// maxText bounds what a buyer may call himself, in bytes.
const maxText = 100

func (c *counter) order(w http.ResponseWriter, r *http.Request) {
	var want struct {
		Buyer string `json:"buyer"`
		Item  string `json:"item"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(&want)
	if err == nil && (want.Buyer == "" || len(want.Buyer) > maxText || want.Item == "") {
		err = fmt.Errorf("need a buyer, of up to %d bytes, and an item", maxText)
	}
	if err != nil {
		answer(w, http.StatusBadRequest, problem{err.Error()})
		return
	}
	o, old, err := c.shop.place(r.Context(), want.Buyer, want.Item)
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	w.Header().Set("Location", "/orders/"+o.ID)
	status := http.StatusCreated
	if old {
		status = http.StatusOK
	}
	answer(w, status, o)
}

func (c *counter) pay(w http.ResponseWriter, r *http.Request) {
	o, err := c.shop.pay(r.Context(), r.PathValue("id"))
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, o)
}

func (c *counter) show(w http.ResponseWriter, r *http.Request) {
	o, err := c.shop.store.order(r.Context(), r.PathValue("id"))
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, o)
}

func (c *counter) parcel(w http.ResponseWriter, r *http.Request) {
	p, err := c.shop.parcel(r.Context(), r.PathValue("id"))
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, p)
}

// A problem is the body of an answer that is not the wanted one.
type problem struct {
	Error string `json:"error"`
}

// refuse answers an error. What is the shop's own trouble is told to the log and
// not to the buyer.
func (c *counter) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var is *stateError
	switch {
	case errors.Is(err, errSoldOut):
		// Pieces come back as unpaid orders end.
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(c.shop.deadline.Seconds()))))
		answer(w, http.StatusConflict, problem{errSoldOut.Error()})
	case errors.Is(err, errGone):
		answer(w, http.StatusGone, problem{errGone.Error()})
	case errors.Is(err, errNoOrder), errors.Is(err, errNoItem):
		answer(w, http.StatusNotFound, problem{"no such order or item"})
	case errors.As(err, &is):
		answer(w, http.StatusConflict, problem{is.Error()})
	case errors.Is(err, errNoParcel):
		answer(w, http.StatusGatewayTimeout, problem{errNoParcel.Error()})
	default:
		if r.Context().Err() == nil { // else the buyer has left
			c.warn(fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err))
		}
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, problem{"try again"})
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error: the buyer has left
}

// page shows the board. It needs no script: the browser loads it anew.
func (c *counter) page(w http.ResponseWriter, _ *http.Request) {
	var html bytes.Buffer
	if err := page.Execute(&html, c.board.snapshot()); err != nil {
		c.warn(fmt.Errorf("page: %w", err))
		http.Error(w, "try again", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_, _ = html.WriteTo(w)
}

// shut ends a server: requests under way get a second.
func shut(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}
