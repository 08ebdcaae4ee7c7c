package cluster
import ("testing";"fmt"; metav1 "k8s.io/apimachinery/pkg/apis/meta/v1")
func TestDbg(t *testing.T) {
	s := startServer(t)
	w, _ := NewWriter(s.Admin())
	facts := newNodeStore(func(string) {})
	c := s.node(t, "dbg")
	fmt.Println("created", len(c.ManagedFields))
	n, err := w.Apply(t.Context(), facts.convert(c), closing())
	fmt.Println(err, len(n.ManagedFields))
	g, _ := s.CoreV1().Nodes().Get(t.Context(), "dbg", metav1.GetOptions{})
	fmt.Println(len(g.ManagedFields))
	g, _ = w.Apply(t.Context(), facts.convert(n), &gateDecisionOpen)
	fmt.Println(len(g.ManagedFields), g.ManagedFields)
}
var gateDecisionOpen = *closing(theirs)
