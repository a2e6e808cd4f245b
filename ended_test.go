package duly_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/dulyhq/duly"
)

func TestDecodeReadsTheResultOrSaysHowTheTaskEnded(t *testing.T) {
	t.Parallel()
	var got struct{ N int }
	for _, result := range [][]byte{[]byte(`{"N":3}`), nil} {
		if err := (duly.Ended{Action: duly.Acked, Result: result}).Decode(&got); err != nil || got.N != 3 {
			t.Errorf("Decode of %q: %v, decoded %d", result, err, got.N)
		}
	}
	if err := (duly.Ended{Action: duly.Buried, Err: duly.ErrExpired}).Decode(&got); !errors.Is(err, duly.ErrExpired) {
		t.Errorf("of one that expired: %v", err)
	}
	if err := (duly.Ended{Action: duly.Cancelled}).Decode(&got); err == nil {
		t.Error("a cancelled task has a result")
	}
	var syntax *json.SyntaxError
	if err := (duly.Ended{Action: duly.Acked, Result: []byte("{")}).Decode(&got); !errors.As(err, &syntax) {
		t.Errorf("broken JSON: %v", err)
	}
}

func TestWhyReadsTheTextOfAFailure(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"":                      nil,
		duly.ErrExpired.Error(): duly.ErrExpired,
		fmt.Sprintf("%v: at noon", duly.ErrExpired):  duly.ErrExpired,
		fmt.Sprintf("pay: %v", duly.ErrExpired):      nil,
		duly.ErrSkipped.Error():                      duly.ErrSkipped,
		fmt.Sprintf("%v: by a day", duly.ErrSkipped): nil,
		duly.ErrCrashed.Error():                      nil,
	} {
		err := duly.Why(text)
		for _, known := range []error{duly.ErrExpired, duly.ErrSkipped, duly.ErrCrashed} {
			if errors.Is(err, known) != errors.Is(want, known) {
				t.Errorf("Why(%q) is %v, want %v", text, err, want)
			}
		}
		if (err == nil) != (text == "") || want == nil && err != nil && err.Error() != text {
			t.Errorf("Why(%q) has the text %v", text, err)
		}
	}
}
