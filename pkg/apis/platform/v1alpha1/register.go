package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of every type in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: "platform.tejo.dev", Version: "v1alpha1"}

// AddToScheme registers this package's types; the generated clientset calls it.
var AddToScheme = (&runtime.SchemeBuilder{addKnownTypes}).AddToScheme

// Resource qualifies a resource name with this package's group; the generated
// listers need it for their NotFound errors.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &WebApp{}, &WebAppList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
