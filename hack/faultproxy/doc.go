// Package faultproxy is an HTTPS proxy between a client and a real
// kube-apiserver that does to their traffic what networks, load balancers and
// API servers in trouble do. System tests put it in front of the API server of
// hack/controlplane:
//
//	p, err := faultproxy.Start(faultproxy.Config{Upstream: cp.Config()})
//	defer p.Close()
//	client := kubernetes.NewForConfigOrDie(p.ClientConfig(cp.Config()))
//	fault := p.Add(faultproxy.Rule{
//		Match:  faultproxy.Match{Verbs: []string{"watch"}, Resource: "leases"},
//		Freeze: faultproxy.FreezeStream,
//	})
//	...
//	fault.Remove()
//
// # How it works
//
// The proxy ends the client's TLS and HTTP, so it answers HTTP/2 pings itself:
// as behind a load balancer, a live connection says nothing about the API
// server. It speaks to the API server over connections of its own.
//
// A Rule has a Match and any number of effects. A request is bound to every
// rule that matches when it arrives; an open watch also to rules added later.
// Rules combine: one may delay what another strips. Removing a rule ends its
// effects, except those of a Permanent one on the streams that it holds.
//
// Watches are read frame by frame, JSON and protobuf alike, and each frame is
// flushed at once unless a rule holds it back. Everything else is copied.
//
// # Credentials
//
// Bearer tokens and impersonation headers pass. A client certificate cannot
// pass a proxy that ends TLS, so ClientConfig remembers the key of the
// configuration it is given, and requests of a client that shows that
// certificate go upstream with it: the API server sees the same user as
// without the proxy. Requests without any credentials go upstream with
// those of Config.Upstream.
//
// # Caveats
//
//   - Never a proxy for anything but tests: it hands out the credentials of
//     Config.Upstream to everybody who can reach its loopback port.
//   - Responses come uncompressed: the proxy has to read them, also those whose
//     rule is added later.
//   - Streams are held in memory without a bound, and so is the log of requests
//     (about 500 bytes each).
//   - No upgrades (exec, attach, port-forward): they are answered with 501.
//   - CBOR watches pass as raw chunks: nothing can be stripped from them, and an
//     injected ERROR would be JSON. client-go does not ask for CBOR by default;
//     Config.ForceJSON rules it out.
//   - Config.OpaqueResourceVersions leaves continue tokens and the text of error
//     messages as they are, and refuses requests with one of them in a protobuf body
//     that are no creates.
//   - Removing a rule with FreezeConnection revives the connection. If the client
//     has closed it meanwhile, it learns that then.
package faultproxy
