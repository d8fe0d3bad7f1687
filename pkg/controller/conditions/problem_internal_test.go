package conditions

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// A message that is cut within a character comes back from the API server as
// another one: every pass would write the status again, and its own event would
// run the next pass at once.
func TestProblemMessageSurvivesStorage(t *testing.T) {
	for shift := range len("€") {
		message := ProblemOf(errors.New(strings.Repeat("x", shift) + strings.Repeat("€", maxMessage))).Message
		data, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		var stored string
		if err := json.Unmarshal(data, &stored); err != nil {
			t.Fatal(err)
		}
		if stored != message {
			t.Errorf("shifted by %d: stored %q, want %q", shift, stored[len(stored)-12:], message[len(message)-12:])
		}
	}
}
