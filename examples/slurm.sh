#!/bin/bash
# A study on the nodes of a SLURM job. Before its time limit the runs are saved; sbatch it again to resume.
#
#   sbatch examples/slurm.sh
#SBATCH --job-name=recollect
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
set -euo pipefail

export RAY_AUTH_MODE=token # without it, anyone who can reach the port can run commands as you
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN

head=$SLURMD_NODENAME
host=$(hostname --ip-address | cut -d' ' -f1)
port=$((20000 + SLURM_JOB_ID % 10000)) # two jobs may share a node
others=$((SLURM_JOB_NUM_NODES - 1))

srun --nodes=1 --ntasks=1 --nodelist="$head" ray start --head --block --include-dashboard=false \
  --node-ip-address="$host" --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" &
until (echo >"/dev/tcp/$host/$port") 2>/dev/null; do sleep 1; done
if ((others > 0)); then
  srun --nodes="$others" --ntasks="$others" --exclude="$head" ray start --block \
    --address="$host:$port" --num-cpus="$SLURM_CPUS_PER_TASK" &
fi

# In place of this shell, so that the signal before the end reaches it.
exec recollect compare studies/gpt2ppo.yaml --out "$HOME/runs" --on "ray:$host:$port" --quiet
