package undecodable

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

const (
	// shownFields are named one by one.
	shownFields = 3
	// maxPath bounds a path in a message, in bytes; keys of maps are people's own.
	maxPath = 256
	// maxCommand bounds a command in a message, in bytes. A longer one is left out
	// as a whole: half a command must not be pasted.
	maxCommand = 2048
	// maxWords bounds what others say, in bytes.
	maxWords = 512
)

// message is what people are told of a bad object: the fields, what that means, and
// the commands that mend it.
func message(record informer.Quarantined) string {
	var b strings.Builder
	b.WriteString(describe(record))
	b.WriteString(". The spec is not acted on and what was made for it is left as it is until this is mended")
	b.WriteString(remedy(record))
	return b.String()
}

// describe names the first few fields.
func describe(record informer.Quarantined) string {
	if len(record.Fields) == 0 {
		return "The object cannot be decoded: " + cut(record.Error, maxWords)
	}
	var parts []string
	for _, f := range record.Fields[:min(len(record.Fields), shownFields)] {
		path := f.Path
		if path == "" {
			path = "the object"
		}
		parts = append(parts, fmt.Sprintf("%s is %s: %s", cut(path, maxPath), cut(f.Value, maxWords), cut(f.Reason, maxWords)))
	}
	text := strings.Join(parts, "; ")
	if more := len(record.Fields) - shownFields; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// remedy is the end of a message: the commands, if there are any that can be shown.
func remedy(record informer.Quarantined) string {
	commands := strings.Join(record.Fix, " && ")
	switch {
	case commands == "":
		return fmt.Sprintf(": kubectl edit %s %s", kubectlName(record.Resource), target(record))
	case len(commands) > maxCommand:
		return " by the command that /debug/quarantine shows"
	}
	return ": " + commands
}

// kubectlName is a resource as kubectl takes it without doubt.
func kubectlName(resource schema.GroupVersionResource) string {
	if resource.Group == "" {
		return resource.Resource
	}
	return resource.Resource + "." + resource.Version + "." + resource.Group
}

func target(record informer.Quarantined) string {
	if record.Key.Namespace == "" {
		return record.Key.Name
	}
	return record.Key.Name + " -n " + record.Key.Namespace
}

// cut bounds a text of others, in bytes.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
