// Package controlplane runs a real Kubernetes control plane on the machine at
// hand: etcd and kube-apiserver, and when asked kube-controller-manager,
// kube-scheduler and kwok, which pretends to be the nodes. No container
// runtime, no network beyond loopback, no root.
//
// It has three users:
//
//   - System tests. ForTest starts a control plane for one test; a package
//     whose tests share one declares a Shared. Both can do to it what happens
//     to a real one: pause it, restart it, set etcd back, write bytes into
//     etcd that no API server would accept.
//   - The demo and the benchmarks, through Start.
//   - People, through "go run ./hack/controlplane/cmd/controlplane up".
//
// # Binaries
//
// The binaries are compiled from the nested module in binaries/, which pins
// their versions, and are cached below the user's cache folder. Start uses
// those named by KUBEBUILDER_ASSETS, then those in the cache; it compiles only
// when Config.Build is set or STEADWATCH_BUILD_CONTROLPLANE=1, because the
// first time takes about 15 minutes on 2 cores. Without binaries Start returns
// ErrNoBinaries; the test helpers then skip the test, or fail it under CI=true.
//
// # Processes
//
// Every process is the leader of its own process group. On Linux the kernel
// kills it when the process that started it dies, however that one dies. A
// control plane started with Config.Detach is made to outlive its starter; Down
// ends it.
//
// # Caveats
//
//   - etcd listens on loopback without TLS or authentication, and keeps its
//     data without fsync unless Config.Fsync is set: for tests only.
//   - Without Config.Full nothing reconciles built-in kinds: no garbage
//     collection, no default service account, no namespace deletion.
//     Namespace empties its namespace itself; the ServiceAccount admission
//     plugin is off, so that Pods can be created.
//   - kwok's Pods have no containers: no logs, no exec, no endpoints that
//     answer.
//   - Only on Linux does a control plane die with the process that started it.
//     Elsewhere a test binary that panics or is killed leaves its children
//     running.
//   - Temporary folders of killed test binaries stay until the next Start, which
//     removes those that nobody holds.
//   - Ports are chosen by trying. Start repeats with others when a port was
//     taken in between; a restart has to have the same port and only waits.
//   - After Restore without restarting the API servers, these go on serving
//     LIST from a watch cache that is ahead of etcd. That is what a real one
//     does, and is why the option exists.
package controlplane
