package main

import (
	"bytes"
	"errors"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
)

func TestJSONLogger(t *testing.T) {
	var out bytes.Buffer
	logger := jsonLogger(&out, "4")
	logger.Info("Controller started", "controller", "webapp", "object", klog.KRef("a", "b"))
	logger.V(4).Info("Reconciled", "class", "Done")
	logger.V(8).Info("Response Body", "body", "a password") // client-go's, and not asked for
	logger.Error(errors.New("broken"), "Informer ended")
	got := regexp.MustCompile(`"time":"[^"]+",`).ReplaceAllString(out.String(), "")
	want := `{"level":"INFO","msg":"Controller started","controller":"webapp","object":{"name":"b","namespace":"a"}}
{"v":4,"msg":"Reconciled","class":"Done"}
{"level":"ERROR","msg":"Informer ended","err":"broken"}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}
