#!/usr/bin/env bash
# The network of the Ray cluster @{name}: only @cidr may log in.
#   up      makes it
#   down    removes it, after `ray down`
set -euo pipefail
gcloud() { command gcloud --project @project --quiet "$@@"; }

case "${1:-}" in
  up)
    gcloud compute networks create @{name} --subnet-mode custom
    gcloud compute networks subnets create @{name} --network @{name} \
      --region @region --range 10.90.0.0/20
    gcloud compute firewall-rules create @{name}-inside --network @{name} \
      --allow tcp,udp,icmp --source-ranges 10.90.0.0/20
    gcloud compute firewall-rules create @{name}-ssh --network @{name} \
      --allow tcp:22 --source-ranges @cidr
    ;;
  down)
    left=$(gcloud compute instances list --format 'value(name)' \
      --filter 'labels.ray-cluster-name=@{name}')
    left+=$(gcloud compute tpus tpu-vm list --zone @zone --format 'value(name)' \
      --filter 'labels.ray-cluster-name=@{name}')
    if [ -n "$left" ]; then
      printf 'these machines are there, and bill: %s\nend them with ray down first\n' "$left" >&2
      exit 1
    fi
    gcloud compute firewall-rules delete @{name}-ssh @{name}-inside
    gcloud compute networks subnets delete @{name} --region @region
    gcloud compute networks delete @{name}
    ;;
  *)
    echo "usage: $0 up|down" >&2
    exit 2
    ;;
esac
