package applicationroute_test

import (
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

// A ListenerSet of ours that cannot be decoded is not left behind when its route serves
// no HTTPS any more: its listeners would stay on the Gateway. Nor is an HTTPRoute of a
// route that holds nothing any more.
func TestUndecodableChildIsWithdrawn(t *testing.T) {
	for name, restart := range map[string]bool{"Running": false, "Restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.service("web", 80)
			p := w.start(options{})
			w.route("shop", "shop.example.com")
			w.change("shop", func(r *v1alpha1.ApplicationRoute) { r.Spec.TLSSecret = "shop-tls" })
			w.httpRoute("shop", "on the ListenerSet", hangsOn("ListenerSet"))
			w.route("first", "first.example.com")
			w.nextSecond()
			w.route("loser", "loser.example.com")
			w.httpRoute("loser", "rendered", exists)
			p.idle(t)
			if restart {
				p.stop()
			}
			spoil := func(resource, name, list string) {
				w.corruptObject(resource, name, func(o map[string]any) bool {
					entry := o["spec"].(map[string]any)[list].([]any)[0].(map[string]any)
					if entry["name"] == true {
						return false
					}
					entry["name"] = true
					return true
				})
			}
			spoil("listenersets", "shop", "listeners")
			spoil("httproutes", "loser", "rules")
			if restart {
				p = w.start(options{})
			}
			w.condition("shop", v1alpha1.ConditionDegraded, "True ChildUndecodable")
			w.condition("loser", v1alpha1.ConditionDegraded, "True ChildUndecodable")
			p.idle(t)

			p.requests.forget()
			w.change("shop", func(r *v1alpha1.ApplicationRoute) { r.Spec.TLSSecret = "" })
			w.httpRoute("shop", "on the Gateway", hangsOn("Gateway"))
			w.gone("listenersets", "shop")
			w.change("first", func(r *v1alpha1.ApplicationRoute) {
				r.Spec.Hostnames = []string{"first.example.com", "loser.example.com"}
			})
			w.gone("httproutes", "loser")
			w.httpRoute("first", "taken over", serves("first.example.com", "loser.example.com"))
			p.idle(t)
			for _, one := range []string{"DELETE listenersets/shop", "DELETE httproutes/loser"} {
				if n := countOf(p.requests.written(), one); n != 1 {
					t.Errorf("%d times %s in %q, want 1", n, one, p.requests.written())
				}
			}
			w.condition("loser", v1alpha1.ConditionDegraded, "True HostnameConflict")
		})
	}
}

func countOf(all []string, one string) int {
	return len(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s != one }))
}

// gone waits until there is no such object of the Gateway API, whether or not it can be
// decoded.
func (w *world) gone(resource, name string) {
	w.Helper()
	eventually(w.T, resource+" "+name+" to go", func() (bool, string) {
		raw, err := w.gateway.GatewayV1().RESTClient().Get().Namespace(w.namespace).Resource(resource).Name(name).DoRaw(w.Context())
		return apierrors.IsNotFound(err), fmt.Sprintf("%s, %v", raw, err)
	})
}

// groups of the resources that corruptObject knows.
var groups = map[string]string{"applicationroutes": v1alpha1.SchemeGroupVersion.Group, "httproutes": gatewayv1.GroupName, "listenersets": gatewayv1.GroupName}
