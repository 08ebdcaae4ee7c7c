// SPDX-License-Identifier: Apache-2.0

package read

import (
	"testing"

	"github.com/nodegate/nodegate/testcluster"
	"github.com/nodegate/nodegate/testcluster/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m, testcluster.Options{Components: []testcluster.Component{testcluster.APIServer}})
}
