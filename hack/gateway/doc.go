// Package gateway is what a cluster has for ApplicationRoutes besides Kubernetes: the
// CRDs of the Gateway API (crds.go), and something in the place of a controller that
// implements it (standin.go, report.go).
//
// The CRDs are those of the module sigs.k8s.io/gateway-api in go.mod, standard channel,
// so that the tests run against the version whose types are compiled in. There is no
// copy of them here.
//
// The [StandIn] moves no traffic. It does to status what a conforming implementation
// does: Gateways become Accepted and Programmed and count what hangs on them, routes get
// an entry in status.parents with Accepted and ResolvedRefs, ListenerSets get conditions
// for themselves and for each listener, all with the generation that they are about.
// [Behavior] makes it refuse, be late, be silent, or say what nobody has heard of.
//
// # Caveats
//
// It takes every Gateway for its own, whatever the GatewayClass. Two that run at once
// under different names report the same Gateways and ListenerSets, whose status has no
// place for both: they must not differ there.
//
// Selectors of namespaces select all. ReferenceGrants do not exist: what is in another
// namespace is not permitted. Secrets count for ListenerSets, not for Gateways, and for
// their type alone.
//
// It hears of CRDs that are installed late within a minute, as Steadwatch does, since it
// uses the same informers. A test that measures how soon Steadwatch does starts it after
// the CRDs are there.
package gateway
