#!/bin/bash
# Runs a command as a Slurm job, on one node or several, and requeues it at its time limit: docs/slurm.md.
#   sbatch --nodes=2 infra/slurm.sh python -m workflows.reproduce_table2 --profile wmt14 --store /shared/aiayn
#SBATCH --job-name=aiayn
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120

# Slurm sends SIGTERM to this shell, too. If the shell ended first, Slurm would kill the command before it cleans up.
trap 'stopped=1; wait' TERM
# Near the time limit; the requeued job continues.
trap 'scontrol requeue "$SLURM_JOB_ID"; wait' USR1

# The folder of Ray's files: two users cannot share /tmp/ray, and TMPDIR may be longer than 39 bytes.
export RAY_TMPDIR=/tmp/aiayn-$SLURM_JOB_ID

if ((SLURM_JOB_NUM_NODES > 1)); then
    export RAY_AUTH_MODE=token address=$SLURMD_NODENAME:$((20000 + SLURM_JOB_ID % 10000))
    srun --overlap --cpus-per-task="$SLURM_CPUS_PER_TASK" --open-mode=append --output=ray-%j-%n.log bash -c '
        options=(--block --disable-usage-stats --num-cpus="$SLURM_CPUS_PER_TASK")
        ((SLURM_PROCID)) && exec ray start --address="$address" "${options[@]}"
        exec ray start --head --port="${address#*:}" --include-dashboard=false "${options[@]}"' &
    ray=$!
    for _ in {1..60}; do # after five minutes, go on with the nodes that have joined
        joined=$(ray status --address="$address" 2> /dev/null | grep -c " node_")
        ((stopped || joined == SLURM_JOB_NUM_NODES)) && break
        kill -0 "$ray" 2> /dev/null || exit 1 # ray-JOB-NODE.log says why Ray has ended
        sleep 5
    done
    ((stopped)) && exit 143
    export RAY_ADDRESS=$address
fi
"$@" &
wait $!
