#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests on several minor versions of Kubernetes, one after the other, and ends
# with a line about each:
#
#	hack/test-versions.sh "1.34 1.35" [arguments of hack/test]
#
# The tests of a version run also if those of another have failed, or if its
# programs could not be built. Results are not taken from go test's cache, which does
# not see that programs which tests start read the version, too. The complete output is
# in bin/test/<version>.
set -u

versions=$1
shift
summary= status=0
go build -o bin/run-tests ./hack/test || exit

for version in $versions; do
	printf '\n=== Kubernetes %s\n' "$version"
	export NODEGATE_KUBERNETES_VERSION="$version"
	began=$(date +%s)
	if ! go run ./testcluster/cmd/nodegate-build; then
		result="not tested: its programs were not built" status=1
	elif bin/run-tests -out "bin/test/$version" -count 1 -vet=off "$@"; then
		result=passed
	elif [ $? -gt 128 ]; then
		result=interrupted status=1
	else
		result=FAILED status=1
	fi
	summary="$summary  $version  $result, $((($(date +%s) - began + 59) / 60)) min
"
	[ "$result" != interrupted ] || break
done

printf '\n=== Kubernetes versions\n%s' "$summary"
exit $status
