#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Writes kubernetes-<minor>.mod and .sum for a Kubernetes release, replacing
# those of the same minor version:
#
#	components/update-kubernetes.sh v1.37.1 [kwok-version]
#
# The newest version's module also builds etcd, in the version of the client that
# this Kubernetes has, KWOK, kubectl and the kubelet. The script prints which modules they
# want newer than Kubernetes is released with: this should stay a short list. It also has the
# program that package components calls Controllers, whose source gets the new name.
set -eu

version=${1:?usage: update-kubernetes.sh v1.MINOR.PATCH [kwok-version]}
kwok=${2:-v0.8.0}
minor=$(echo "$version" | sed -n 's/^v\(1\.[0-9]*\)\.[0-9]*$/\1/p')
staging=$(echo "$version" | sed 's/^v1/v0/')
[ -n "$minor" ] || { echo "update-kubernetes.sh: $version is not of the form v1.MINOR.PATCH" >&2; exit 1; }

target=$(cd "$(dirname "$0")" && pwd)
newest=$( (cd "$target" && ls kubernetes-*.mod; echo "kubernetes-$minor.mod") | sort -t. -k2 -n | tail -1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOWORK=off GOFLAGS=-mod=mod

programs="kube-apiserver kube-controller-manager kube-scheduler"
others=
gomod=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^.*"GoMod": "\(.*\)".*$/\1/p')
if [ "$newest" = "kubernetes-$minor.mod" ]; then
	etcd=$(sed -n 's|^.*go.etcd.io/etcd/client/v3 \(v[^ ]*\).*$|\1|p' "$gomod")
	programs="$programs kubectl kubelet"
	others="go.etcd.io/etcd/server/v3@$etcd sigs.k8s.io/kwok/cmd/kwok@$kwok"
fi

# k8s.io/kubernetes replaces the modules it is developed with by directories of
# its own. For anybody else they are released as v0.MINOR.PATCH.
{
	echo "module nodegate.dev/cluster/kubernetes"
	sed -n 's/^go /\ngo /p' "$gomod"
	echo "tool ("
	for program in $programs; do
		echo "k8s.io/kubernetes/cmd/$program"
	done
	echo ")"
	echo "require k8s.io/kubernetes $version"
	echo "replace ("
	sed -n "s|^.*\(k8s.io/[^ ]*\) => ./staging/.*\$|\1 => \1 $staging|p" "$gomod"
	echo ")"
} >go.mod
go mod tidy
go list -m -f '{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}' all | sort >released
if [ -n "$others" ]; then
	# shellcheck disable=SC2086 # a list
	go get -tool $others
	go mod tidy
	go list -m -f '{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}' all | sort >together
	echo "newer than in Kubernetes $version:"
	go mod tidy # without what listing has added
	join released together | awk '$2 != $3 { print "  " $1, $2, "=>", $3 }'
fi

cp go.mod "$target/kubernetes-$minor.mod"
cp go.sum "$target/kubernetes-$minor.sum"
if [ "$newest" = "kubernetes-$minor.mod" ] && [ ! -e "$target/kubernetes-$minor.go.txt" ]; then
	mv "$target"/kubernetes-*.go.txt "$target/kubernetes-$minor.go.txt"
fi
echo "wrote $target/kubernetes-$minor.mod and .sum"
