// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/e2e/judge/recording"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/presets"
	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
	"github.com/nodegate/nodegate/testcluster/components"
)

// requested is empty by default, because building a neighbour takes minutes, and none of its
// packages are nodegate's.
var requested = flag.String("neighbours", "", "the programs to test nodegate beside, separated by commas; the tests of others are skipped")

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m, recording.ClusterOptions(os.Stderr, testcluster.APIServer, testcluster.Scheduler, testcluster.ControllerManager, testcluster.KWOK))
}

// lag is longer than a delay of a busy machine, for the judge.
const lag = 30 * time.Second

// shared is what all tests use.
var shared struct {
	once         sync.Once
	err          error
	client       client.Client
	applier      *testbed.Applier
	installation *testbed.Installation
}

// site is a cluster with nodegate and one neighbour.
type site struct {
	*testing.T
	cluster *testcluster.Cluster
	client  client.Client
	// neighbour is the path of the neighbour's program.
	neighbour string
	started   int // how often the neighbour was started
	since     recording.Position
}

// newSite returns the cluster, in which nodegate runs. It skips the test if the neighbour is not
// requested. When the test ends, the judge judges it.
func newSite(t *testing.T, neighbour components.Component) *site {
	t.Helper()
	skipUnlessRequested(t, neighbour)
	s := newSiteWithout(t)
	s.build(neighbour)
	return s
}

// newSiteWithout returns a site without a neighbour.
func newSiteWithout(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, cluster: clustertest.Shared(t)}
	shared.once.Do(func() { shared.err = install(s.cluster) })
	s.must(shared.err)
	s.client = shared.client
	s.since = s.now()
	t.Cleanup(s.judge)
	return s
}

// skipUnlessRequested skips the test if the neighbour is not requested.
func skipUnlessRequested(t *testing.T, neighbour components.Component) {
	t.Helper()
	clustertest.SkipIfShort(t)
	clustertest.SkipWithoutMutatingPolicies(t)
	if !slices.Contains(strings.Split(*requested, ","), string(neighbour)) {
		t.Skipf("%s is not requested: run make test-neighbours", neighbour)
	}
}

// build builds the neighbour.
func (s *site) build(neighbour components.Component) {
	s.Helper()
	paths, err := components.Build(s.Context(), components.Options{Components: []components.Component{neighbour}, Progress: os.Stderr})
	s.must(err)
	s.neighbour = paths[neighbour]
}

// install installs and starts nodegate, which all tests use.
func install(c *testcluster.Cluster) error {
	ctx := context.Background()
	program, err := testbed.BuildProgram(ctx, c.Dir())
	if err != nil {
		return err
	}
	if shared.client, err = testbed.NewClient(c.Admin()); err != nil {
		return err
	}
	if shared.applier, err = testbed.NewApplier(c.Admin()); err != nil {
		return err
	}
	keys := append([]string{keyA, keyReadiness}, presets.TaintKeys()...)
	if shared.installation, err = testbed.Install(ctx, shared.applier, program, keys, "--node-conditions"); err != nil {
		return err
	}
	controller, err := testbed.StartController(ctx, c, shared.installation)
	if err != nil {
		return err
	}
	return controller.AwaitReady(ctx)
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
