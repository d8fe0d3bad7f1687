package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition types of an ApplicationRoute, an API contract.
const (
	// ConditionReady: the route is accepted and programmed as the spec asks for.
	// The one condition to wait for.
	ConditionReady = "Ready"
	// ConditionProgressing: the gateway has not yet said what it did with it.
	ConditionProgressing = "Progressing"
	// ConditionDegraded: something stands in the way that more time alone does
	// not mend.
	ConditionDegraded = "Degraded"
	// ConditionDependenciesReady: every Service, port and Secret that the spec
	// refers to exists.
	ConditionDependenciesReady = "DependenciesReady"
)

// ApplicationRoute exposes Services under hostnames through a Gateway.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=aroute,categories={all,steadwatch}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Hostnames",type=string,JSONPath=`.spec.hostnames`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type ApplicationRoute struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ApplicationRouteSpec `json:"spec"`
	// +optional
	Status ApplicationRouteStatus `json:"status,omitempty"`
}

// ApplicationRouteSpec is what the user wants.
type ApplicationRouteSpec struct {
	// hostnames that the route answers to; a leading "*." matches one label or more.
	//
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([*][.])?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="a hostname is a lower-case DNS name without port or path, optionally starting with '*.'"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^[0-9]+[.][0-9]+[.][0-9]+[.][0-9]+$')",message="a hostname must not be an IP address"
	Hostnames []string `json:"hostnames"`

	// backends share the traffic in proportion to their weights.
	//
	// +required
	// +listType=map
	// +listMapKey=service
	// +listMapKey=port
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.exists(b, !has(b.weight) || b.weight > 0)",message="at least one backend needs a weight above 0"
	Backends []Backend `json:"backends"`

	// tlsSecret names a Secret of type kubernetes.io/tls in the same namespace;
	// with it, the hostnames are served by HTTPS.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="tlsSecret must be the name of a Secret in the same namespace: lower-case letters, digits, '-' and '.'"
	TLSSecret string `json:"tlsSecret,omitempty"`

	// timeout bounds one request, from 1ms to 24h, in whole milliseconds; the
	// gateway's own default when left out.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,4}h|[0-9]{1,6}m|[0-9]{1,8}(s|ms))+$') && duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="timeout must be a duration with a unit, from 1ms to 24h, such as 500ms, 2s or 1m30s (days and fractions are not possible)"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// gateway to attach to; the controller's --default-gateway when left out.
	//
	// +optional
	Gateway *GatewayReference `json:"gateway,omitempty"`
}

// Backend is one port of one Service in the same namespace.
type Backend struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="service must be the name of a Service in the same namespace: lower-case letters, digits and '-', starting with a letter"
	Service string `json:"service"`

	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// weight is this backend's share of the sum of all weights; 0 sends nothing.
	//
	// +optional
	// +default=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Weight *int32 `json:"weight,omitempty"`
}

// GatewayReference names a Gateway.
type GatewayReference struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace of the Gateway; the route's own when left out.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// ApplicationRouteStatus is what the controller has observed.
type ApplicationRouteStatus struct {
	// observedGeneration is the metadata.generation that the rest of the status
	// was computed from. Behind it, the status describes an older spec.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Progressing, Degraded and DependenciesReady.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ApplicationRouteList is what a LIST returns.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ApplicationRouteList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ApplicationRoute `json:"items"`
}
