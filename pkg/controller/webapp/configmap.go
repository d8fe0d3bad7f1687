package webapp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// annotationContent holds a cached ConfigMap's hash. Its key has blanks, which
// the API server's validation refuses in an annotation: no user can have forged
// it.
const annotationContent = "steadwatch: hash of content"

// TransformConfigMap, as informer.Config.Transform, replaces the content of a
// ConfigMap by its hash, so that the cache stays small however large ConfigMaps
// are. Labels and annotations go too: one of them, kubectl's, is a copy of the
// content. An object that has been through it before (a relist passes cached ones
// again) is not touched.
func TransformConfigMap(cm *corev1.ConfigMap) *corev1.ConfigMap {
	if _, done := cm.Annotations[annotationContent]; done {
		return cm
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace:         cm.Namespace,
		Name:              cm.Name,
		UID:               cm.UID,
		ResourceVersion:   cm.ResourceVersion,
		CreationTimestamp: cm.CreationTimestamp,
		DeletionTimestamp: cm.DeletionTimestamp,
		Annotations:       map[string]string{annotationContent: contentHash(cm)},
	}}
}

// configHash is the hash of a ConfigMap's content, transformed or not.
func configHash(cm *corev1.ConfigMap) string {
	if h, ok := cm.Annotations[annotationContent]; ok {
		return h
	}
	return contentHash(cm)
}

// contentHash covers data and binaryData, each entry with its length, so that no
// two contents are written alike.
func contentHash(cm *corev1.ConfigMap) string {
	h := sha256.New()
	writeNumber(h, len(cm.Data))
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		writeBytes(h, []byte(key))
		writeBytes(h, []byte(cm.Data[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(cm.BinaryData)) {
		writeBytes(h, []byte(key))
		writeBytes(h, cm.BinaryData[key])
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLength]
}

// hashLength cuts hashes that tell versions apart to 128 bits.
const hashLength = 32

func writeBytes(h hash.Hash, b []byte) {
	writeNumber(h, len(b))
	h.Write(b)
}

func writeNumber(h hash.Hash, n int) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
}
