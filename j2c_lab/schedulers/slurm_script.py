"""The text of the batch script. bash is on every Slurm node; nothing else is needed."""

#: Told to end by TERM (Slurm's warning before a limit or a preemption) or by INT (`j2c cancel`),
#: it ends the command with TERM and, should that take too long, with KILL. After a warning it
#: waits for Slurm to end it: a job that ends by itself before would not be requeued.
SCRIPT = """\
#!/bin/bash
# j2c run {run}
j2c_mark={mark}
echo "$SLURM_JOB_ID" 2>/dev/null > "$j2c_mark.job"
{setup}
{exports}
export J2C_ATTEMPT_NUMBER=$(({before} + ${{SLURM_RESTART_COUNT:-0}} + 1))
# Commands of their own process groups, which do not ignore SIGINT.
set -m
j2c_asked= j2c_again= j2c_child= j2c_killer=
j2c_end() {{
    j2c_again=1
    [ "$j2c_asked" = cancel ] || j2c_asked=$1
    [ -n "$j2c_child" ] || return
    if [ -z "$j2c_killer" ]; then
        (sleep {kill_after}; kill -KILL -- "-$j2c_child") >/dev/null 2>&1 &
        j2c_killer=$!
        {tell}
    fi
}}
trap 'j2c_end warned' TERM
trap 'j2c_end cancel' INT
[ -z "$j2c_asked" ] || exit 143
{command} </dev/null &
j2c_child=$!
[ -z "$j2c_asked" ] || j2c_end "$j2c_asked"
while j2c_again=; wait "$j2c_child"; j2c_code=$?; [ -n "$j2c_again" ]; do :; done
[ -z "$j2c_killer" ] || kill -KILL -- "-$j2c_killer" 2>/dev/null
rm -f "$j2c_mark."*.pid
echo "$j2c_code" 2>/dev/null > "$j2c_mark.exit"
if [ "$j2c_asked" = warned ]; then
    sleep {linger} &
    wait $!
fi
exit "$j2c_code"
"""

#: How the script passes the wish to end on to the one command on its own node.
TELL_ONE = 'kill -TERM "$j2c_child" 2>/dev/null'

#: And to that of each node. Not by a signal to srun, nor through Slurm: srun ends the step for it,
#: and Slurm signals every process of a step, so that the user's would be warned twice.
TELL_ALL = """\
srun --overlap --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --mem=0 --gres=none \\
            /bin/bash -c {told} </dev/null &"""
TOLD = 'kill -TERM "$(cat "$1.$SLURMD_NODENAME.pid")"'

#: What srun starts on each node, before the command. The names are those that torchrun sets; the
#: batch script, and so srun, runs on the first node, whose address it knows.
SRUN_TASK = """\
export J2C_RANK=$SLURM_PROCID NODE_RANK=$SLURM_NODEID RANK=$SLURM_PROCID LOCAL_RANK=0
export WORLD_SIZE=$SLURM_NTASKS LOCAL_WORLD_SIZE=1
export MASTER_ADDR=${SLURM_LAUNCH_NODE_IPADDR:-$SLURM_SUBMIT_HOST}
export MASTER_PORT=$((20000 + (SLURM_JOB_ID * 7 + ${SLURM_RESTART_COUNT:-0} * 13) % 10000))
# By its number the batch script reaches it.
echo $$ > "$1.$SLURMD_NODENAME.pid"
shift
exec "$@"
"""
