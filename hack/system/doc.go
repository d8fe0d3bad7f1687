// Package system holds the tests of the installed product: the controller's
// binary, under the ServiceAccount and the RBAC rules of manifests/, against a
// control plane with everything that makes Pods run and lets garbage be
// collected. There is nothing else in it.
//
// What is asserted is what a user can see: objects, a watch on them, and the API
// server's audit log of what the controller asked for.
//
//   - guide_test.go, replicas_test.go, drain_test.go: what the guide promises.
//   - steady_test.go: nothing is written when nothing changes, across restarts.
//   - lost_test.go, kill_test.go, race_test.go: writes that are not answered,
//     processes that end between two of them, others who are quicker.
//   - lag_test.go: a local copy that is behind.
//   - burst_test.go, retry_test.go, namespace_test.go, policy_test.go: much at once,
//     and failures that last.
//   - undecodable_test.go: an object that cannot be decoded, under fire.
//   - route_test.go: what ApplicationRoutes leave to the garbage collector.
//
// STEADWATCH_LONG=1 runs the long form of the tests that have one.
// STEADWATCH_CONTROLLER names a binary to test in place of the one compiled from
// this checkout, such as one with a mechanism taken out.
//
// Every test checks at its end that the controller has asked for no delete, and
// that nothing was forbidden to it.
//
// # Caveats
//
// A control plane is shared by all tests. Each test's controller works in its
// test's namespaces only (--namespaces) and elects a leader there, so that tests
// can run at the same time. The demo's test runs one that works in all.
//
// kwok's Pods have no containers: that a rollout serves its new configuration is
// shown by the Pods' template, not by an answer of theirs.
package system
