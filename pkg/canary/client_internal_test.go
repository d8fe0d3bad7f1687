package canary

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// R85: each verb asks once, and tells how long the API server wants to be left alone.
func TestR85AskedOnce(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"busy","reason":"TooManyRequests","code":429}`))
	}))
	defer server.Close()
	client, _, err := connect(&rest.Config{Host: server.URL}, "n")
	if err != nil {
		t.Fatal(err)
	}
	c := &Canary{}
	for verb, do := range map[string]func() error{
		"get": func() error { _, err := client.Get(t.Context(), "l", metav1.GetOptions{}); return err },
		"create": func() error {
			_, err := client.Create(t.Context(), &coordinationv1.Lease{}, metav1.CreateOptions{})
			return err
		},
		"update": func() error {
			_, err := client.Update(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.UpdateOptions{})
			return err
		},
		"list":  func() error { _, err := client.List(t.Context(), metav1.ListOptions{}); return err },
		"watch": func() error { _, err := client.Watch(t.Context(), metav1.ListOptions{}); return err },
	} {
		t.Run(verb, func(t *testing.T) {
			asked = 0
			f := c.classify(verb, do())
			if asked != 1 || f == nil || !f.answered || f.forbidden || f.retryAfter != 7*time.Second {
				t.Errorf("asked %d times: %+v, want once, and 7 s", asked, f)
			}
		})
	}
}
