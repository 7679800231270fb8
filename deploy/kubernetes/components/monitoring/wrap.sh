#!/bin/sh
# Makes PrometheusRule objects of the rules in deploy/prometheus.
set -eu
cd "$(dirname "$0")"
for name in alerts recording; do
	{
		printf 'apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: tenure-%s\nspec:\n' "$name"
		sed -e 's/^\(.\)/  \1/' "../../../prometheus/$name.yaml"
	} >"rules-$name.yaml"
done
