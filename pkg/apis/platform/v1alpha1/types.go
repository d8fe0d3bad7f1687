package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Finalizer holds a deleted WebApp until its pods have been drained, for at most
// spec.drainTimeout.
const Finalizer = "platform.tejo.dev/drain"

// Condition types of a WebApp, an API contract. Each is present from the first
// pass on; a condition that has never been computed is absent, not Unknown.
const (
	// ConditionReady: the Deployment runs what the spec asks for and every
	// dependency is there. The one condition to wait for.
	ConditionReady = "Ready"
	// ConditionProgressing: a rollout or a drain is under way.
	ConditionProgressing = "Progressing"
	// ConditionDegraded: something stands in the way that more time alone does
	// not mend: a refused write, a child that belongs to somebody else, a
	// rollout that missed its deadline.
	ConditionDegraded = "Degraded"
	// ConditionDependenciesReady: every object that the spec refers to exists.
	ConditionDependenciesReady = "DependenciesReady"
)

// WebApp runs one stateless web application: a Deployment and a Service of the
// same name in the same namespace, both owned by it.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=wa,categories={all,steadwatch}
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name becomes the name of a Service: at most 63 lower-case letters, digits and '-', starting with a letter and not ending with '-'"
type WebApp struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec WebAppSpec `json:"spec"`
	// +optional
	Status WebAppStatus `json:"status,omitempty"`
}

// WebAppSpec is what the user wants.
type WebAppSpec struct {
	// image is the container image, by tag or by digest.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.matches('\\\\s')",message="image must not contain white space"
	Image string `json:"image"`

	// replicas is the number of pods. Leave it out to let somebody else decide,
	// such as a HorizontalPodAutoscaler on the Deployment: Steadwatch then never
	// writes the field, and a number that was set before stays.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	Replicas *int32 `json:"replicas,omitempty"`

	// configRef names a ConfigMap in the same namespace whose keys become the
	// container's environment. A change of its content rolls the pods. While it
	// is missing DependenciesReady is False and no pod is started or rolled
	// because of it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="configRef must be the name of a ConfigMap in the same namespace: lower-case letters, digits, '-' and '.'"
	ConfigRef string `json:"configRef,omitempty"`

	// port is what the container listens on and the Service forwards to.
	//
	// +optional
	// +default=8080
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// drainTimeout bounds how long a deletion waits for the pods to end, from 0s
	// (do not wait) to 24h. When it is over the object goes, drained or not.
	//
	// +optional
	// +default="30s"
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,4}([.][0-9]{1,9})?h|[0-9]{1,6}([.][0-9]{1,9})?m|[0-9]{1,8}([.][0-9]{1,9})?(s|ms|us|ns))+$') && duration(self) <= duration('24h')",message="drainTimeout must be a duration with a unit, at most 24h, such as 30s, 5m or 1h30m (days are not a unit)"
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
}

// WebAppStatus is what the controller has observed.
type WebAppStatus struct {
	// observedGeneration is the metadata.generation that the rest of the status
	// was computed from. Behind it, the status describes an older spec.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of pods that the Deployment has, of any age.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of pods that are ready.
	//
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// updatedReplicas is the number of pods that run the current template.
	//
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`

	// selector matches the pods, in the form that the scale subresource needs.
	//
	// +optional
	Selector string `json:"selector,omitempty"`

	// conditions are Ready, Progressing, Degraded and DependenciesReady; and, on an
	// object that could not be decoded at some time, Decodable.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WebAppList is what a LIST returns.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type WebAppList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WebApp `json:"items"`
}
