// Package v1alpha1 is the networking.tejo.dev/v1alpha1 API: ApplicationRoute.
//
// The schema refuses whatever the Go types could not decode: one such object in
// etcd would fail the typed LIST of its kind as a whole. What reaches etcd all
// the same (an older schema, a looser one, a write past the API server) is the
// informer's to survive, not this package's.
//
// # Caveats
//
// v1alpha1 may change incompatibly. Condition types and reasons are part of the
// API; messages are for people and are not.
//
// +k8s:deepcopy-gen=package
// +kubebuilder:object:generate=true
// +groupName=networking.tejo.dev
package v1alpha1
