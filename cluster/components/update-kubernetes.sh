#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Writes kubernetes-<minor>.mod and .sum for a Kubernetes release, replacing
# those of the same minor version:
#
#	components/update-kubernetes.sh v1.37.1
set -eu

version=${1:?usage: update-kubernetes.sh v1.MINOR.PATCH}
minor=$(echo "$version" | sed -n 's/^v\(1\.[0-9]*\)\.[0-9]*$/\1/p')
staging=$(echo "$version" | sed 's/^v1/v0/')
[ -n "$minor" ] || { echo "update-kubernetes.sh: $version is not of the form v1.MINOR.PATCH" >&2; exit 1; }

target=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOWORK=off GOFLAGS=-mod=mod

# k8s.io/kubernetes replaces the modules it is developed with by directories of
# its own. For anybody else they are released as v0.MINOR.PATCH.
gomod=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^.*"GoMod": "\(.*\)".*$/\1/p')
{
	echo "module nodegate.dev/cluster/kubernetes"
	sed -n 's/^go /\ngo /p' "$gomod"
	echo "tool ("
	for program in kube-apiserver kube-controller-manager kube-scheduler; do
		echo "k8s.io/kubernetes/cmd/$program"
	done
	echo ")"
	echo "require k8s.io/kubernetes $version"
	echo "replace ("
	sed -n "s|^.*\(k8s.io/[^ ]*\) => ./staging/.*\$|\1 => \1 $staging|p" "$gomod"
	echo ")"
} >go.mod
go mod tidy

cp go.mod "$target/kubernetes-$minor.mod"
cp go.sum "$target/kubernetes-$minor.sum"
echo "wrote $target/kubernetes-$minor.mod and .sum"
